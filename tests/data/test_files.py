"""Files: what is written is what is read, axes are (rows, columns), and broken files say so in one line."""

import struct
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from jcas.data import files
from jcas.data.files import read_image, read_mask, read_weight, write_image, write_mask

ROWS, COLUMNS = 5, 9  # not square, so that swapped axes show
GREY = np.arange(ROWS * COLUMNS, dtype=np.uint8).reshape(ROWS, COLUMNS) * 5
RGB = np.stack([GREY, 255 - GREY, GREY[::-1]], axis=2)


def save(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def save_volume(path: Path, data: np.ndarray, affine: np.ndarray | None = None) -> Path:
    nib.save(nib.Nifti1Image(data, np.eye(4) if affine is None else affine), path)
    return path


@pytest.mark.parametrize("suffix", [".png", ".tif", ".tiff", ".bmp"])
@pytest.mark.parametrize("pixels", [GREY, RGB], ids=["grey", "rgb"])
def test_image_of_8_bits_is_read_as_rows_and_columns_over_255(tmp_path, suffix, pixels):
    image = read_image(save(tmp_path / f"a{suffix}", pixels))
    assert image.dtype == torch.float32
    channels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    np.testing.assert_array_equal(image.numpy(), channels.astype(np.float32) / 255)


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG"])
def test_jpeg_is_read_close_to_what_was_written(tmp_path, suffix):
    smooth = np.linspace(0, 255, 32 * 48).reshape(32, 48).astype(np.uint8)
    image = read_image(save(tmp_path / f"a{suffix}", smooth))
    assert image.shape == (1, 32, 48)
    assert np.abs(image[0].numpy() * 255 - smooth).max() < 8


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_grey_of_16_bits_is_stretched_between_its_percentiles(tmp_path, suffix):
    deep = (np.arange(1000, dtype=np.uint16) * 7 + 300).reshape(20, 50)
    path = save(tmp_path / f"a{suffix}", deep)
    low, high = np.percentile(deep, (0.5, 99.5))
    expected = ((deep - low) / (high - low)).clip(0, 1)
    np.testing.assert_allclose(read_image(path)[0], expected, atol=1e-6)
    assert files.image_channels(path) == 1


def test_fixed_intensity_replaces_both_scalings(tmp_path):
    deep = np.array([[0, 1000, 2000, 3000, 4000]], dtype=np.uint16)
    for path, expected in (
        (save(tmp_path / "deep.png", deep), [0, 0, 0.5, 1, 1]),
        (save(tmp_path / "byte.png", (deep // 100).astype(np.uint8)), [0, 0, 0, 0, 0]),
    ):
        assert read_image(path, intensity=(1000, 3000))[0, 0].tolist() == expected
    with pytest.raises(ValueError, match=r"low < high, got \(3, 3\)"):
        read_image(tmp_path / "deep.png", intensity=(3, 3))


def test_float_tiff_passes_over_nan(tmp_path):
    values = np.linspace(-2, 2, 400, dtype=np.float32).reshape(20, 20)
    values[3, 4] = np.nan
    image = read_image(save(tmp_path / "a.tif", values))
    assert image[0, 3, 4] == 0
    assert image.min() == 0 and image.max() == 1 and bool(image.isfinite().all())


def test_rgb_tiff_of_16_bits_keeps_its_depth(tmp_path):
    deep = np.arange(ROWS * COLUMNS * 3, dtype=np.uint16).reshape(ROWS, COLUMNS, 3)  # would be 0 in 8 bits
    tifffile.imwrite(tmp_path / "a.tif", deep, photometric="rgb")
    image = read_image(tmp_path / "a.tif", intensity=(0, 134))
    np.testing.assert_allclose(image.numpy(), deep.transpose(2, 0, 1) / 134, atol=1e-6)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "int16", "float32", "float64"])
@pytest.mark.parametrize("photometric", ["rgb", "minisblack"])
def test_tiff_with_one_plane_per_channel_is_read_as_colour(tmp_path, kind, photometric):
    stored = RGB.astype(kind).transpose(2, 0, 1).copy()
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, stored, photometric=photometric, planarconfig="separate")
    assert files.image_size(path) == (ROWS, COLUMNS) and files.image_channels(path) == 3
    np.testing.assert_allclose(read_image(path, intensity=(0, 255)).numpy(), stored / np.float32(255), atol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_float_colour_tiff_is_stretched_between_its_percentiles_and_its_alpha_dropped(tmp_path, kind):
    values = np.linspace(-2, 2, 1200).astype(kind).reshape(20, 20, 3)
    low, high = np.percentile(values, (0.5, 99.5))
    expected = ((values.astype(float) - low) / (high - low)).clip(0, 1).transpose(2, 0, 1)
    tifffile.imwrite(tmp_path / "rgb.tif", values, photometric="rgb")
    tifffile.imwrite(
        tmp_path / "rgba.tif", np.dstack([values, values[:, :, :1]]), photometric="rgb", extrasamples=["unassalpha"]
    )
    for name in ("rgb.tif", "rgba.tif"):
        np.testing.assert_allclose(read_image(tmp_path / name).numpy(), expected, atol=2e-3)


def test_grey_tiff_of_64_bits_is_an_image_and_a_mask(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", GREY.astype(np.float64), photometric="minisblack")
    assert files.image_channels(tmp_path / "a.tif") == 1
    np.testing.assert_allclose(read_image(tmp_path / "a.tif", intensity=(0, 255))[0], GREY / np.float32(255))
    np.testing.assert_array_equal(read_mask(tmp_path / "a.tif"), GREY)


@pytest.mark.parametrize("count", [2, 4, 5])
def test_tiff_of_an_odd_number_of_channels_is_refused(tmp_path, count):
    stored = np.repeat(GREY[None], count, axis=0)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="minisblack", planarconfig="separate")
    for read in (read_image, files.image_channels, files.image_size):
        with pytest.raises(ValueError, match=rf"a\.tif: {count} channels, an image has 1 \(grey\) or 3 \(RGB\)"):
            read(tmp_path / "a.tif")


def test_rgb_png_of_16_bits_keeps_its_upper_byte(tmp_path):
    deep = (np.arange(ROWS * COLUMNS * 3).reshape(ROWS, COLUMNS, 3) * 480).astype(">u2")
    lines = b"".join(b"\0" + row.tobytes() for row in deep)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", COLUMNS, ROWS, 16, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    image = read_image(tmp_path / "a.png", intensity=(0, 65535))
    np.testing.assert_allclose(image.numpy(), deep.transpose(2, 0, 1) / 65535, atol=1 / 255)


def test_alpha_is_dropped_and_palettes_are_colours_in_images_but_labels_in_masks(tmp_path):
    rgba = np.dstack([RGB, np.full((ROWS, COLUMNS), 7, np.uint8)])
    np.testing.assert_array_equal(
        read_image(save(tmp_path / "rgba.png", rgba)).numpy(), RGB.transpose(2, 0, 1).astype(np.float32) / 255
    )
    grey_alpha = np.dstack([GREY, np.full_like(GREY, 9)])
    Image.fromarray(grey_alpha, mode=None).save(tmp_path / "la.png")
    assert read_image(tmp_path / "la.png").shape == (1, ROWS, COLUMNS)

    indices = (np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) % 3).astype(np.uint8)
    picture = Image.fromarray(indices)
    picture.putpalette([10, 20, 30, 200, 0, 0, 0, 0, 250])
    picture.save(tmp_path / "p.png")
    assert read_image(tmp_path / "p.png")[:, 0, 1].mul(255).round().tolist() == [200, 0, 0]
    assert files.image_channels(tmp_path / "p.png") == 3
    np.testing.assert_array_equal(read_mask(tmp_path / "p.png"), indices)


def test_bilevel_is_black_and_white_as_image_and_zero_and_one_as_mask(tmp_path):
    bits = np.eye(4, 6, dtype=bool)
    path = save(tmp_path / "a.png", bits)
    np.testing.assert_array_equal(read_image(path)[0].numpy(), bits)
    np.testing.assert_array_equal(read_mask(path).numpy(), bits)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp"])
def test_mask_survives_the_round_trip(tmp_path, suffix):
    mask = torch.randint(0, 5, (ROWS, COLUMNS), generator=torch.Generator().manual_seed(0))
    mask[0, 0] = 255
    write_mask(tmp_path / f"m{suffix}", mask)
    again = read_mask(tmp_path / f"m{suffix}")
    assert again.dtype == torch.int64 and torch.equal(again, mask)


@pytest.mark.parametrize("channels", [1, 3])
def test_written_image_is_read_within_half_a_grey_level(tmp_path, channels):
    image = torch.rand(channels, ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    write_image(tmp_path / "a.png", image)
    assert (read_image(tmp_path / "a.png") - image).abs().max() <= 0.5001 / 255


def test_mask_of_16_bits_keeps_large_labels(tmp_path):
    labels = np.array([[0, 300, 65535]], dtype=np.uint16)
    assert read_mask(save(tmp_path / "a.png", labels)).tolist() == [[0, 300, 65535]]


def test_colour_mask_is_refused_unless_its_channels_agree(tmp_path):
    grey = np.repeat(GREY[:, :, None], 3, axis=2)
    np.testing.assert_array_equal(read_mask(save(tmp_path / "same.png", grey)), GREY)
    with pytest.raises(ValueError, match=r"colour\.png: a mask must have one channel"):
        read_mask(save(tmp_path / "colour.png", RGB))


def test_weight_is_scaled_by_its_depth_and_must_lie_in_0_to_1(tmp_path):
    assert read_weight(save(tmp_path / "b.png", np.array([[0, 51, 255]], np.uint8)))[0].tolist() == pytest.approx(
        [0, 0.2, 1]
    )
    assert read_weight(save(tmp_path / "d.png", np.array([[0, 65535]], np.uint16)))[0].tolist() == [0, 1]
    assert read_weight(save(tmp_path / "f.tif", np.array([[0.25, 1]], np.float32)))[0].tolist() == [0.25, 1]
    with pytest.raises(ValueError, match=r"g\.tif: weights must lie in 0\.\.1, got 0\.5\.\.1\.5"):
        read_weight(save(tmp_path / "g.tif", np.array([[0.5, 1.5]], np.float32)))


def test_volume_slices_are_taken_along_the_last_axis(tmp_path):
    data = np.arange(4 * 6 * 3, dtype=np.int16).reshape(4, 6, 3)
    path = save_volume(tmp_path / "v.nii.gz", data)
    assert files.slice_count(path) == 3 and files.image_size(path) == (4, 6)
    for index in range(3):
        np.testing.assert_array_equal(read_mask(path, slice_index=index), data[:, :, index])
    image = read_image(path, intensity=(0, 71), slice_index=1)
    np.testing.assert_allclose(image.numpy(), data[None, :, :, 1] / 71, atol=1e-6)


def test_volume_is_stretched_as_a_whole(tmp_path):
    data = np.zeros((10, 10, 2), dtype=np.float32)
    data[:, :, 0] = np.linspace(0, 1, 100).reshape(10, 10)
    data[:, :, 1] = 100  # the brighter slice sets the white of both
    path = save_volume(tmp_path / "v.nii", data)
    assert read_image(path, slice_index=0).max() == pytest.approx(0.01, abs=1e-3)
    assert read_image(path, slice_index=1).min() == 1


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_volume_mask_keeps_affine_and_spacing_and_is_uint8(tmp_path, suffix):
    affine = np.array([[1.5, 0, 0, -10], [0, 0.5, 0.1, 20], [0, -0.1, 8, 30], [0, 0, 0, 1]])
    source = save_volume(tmp_path / "image.nii.gz", np.ones((4, 6, 3), np.float32) * 0.5, affine)
    mask = np.random.default_rng(0).integers(0, 4, (4, 6, 3))
    write_mask(tmp_path / f"mask{suffix}", mask, like=source)
    again = nib.load(tmp_path / f"mask{suffix}")
    np.testing.assert_allclose(again.affine, affine, atol=1e-5)
    np.testing.assert_allclose(again.header.get_zooms(), nib.load(source).header.get_zooms())
    assert again.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(np.asarray(again.dataobj), mask)
    np.testing.assert_array_equal(read_mask(tmp_path / f"mask{suffix}", slice_index=2), mask[:, :, 2])


@pytest.mark.parametrize(("unit", "factor"), [("mm", 1), ("meter", 1000), ("micron", 0.001), ("unknown", 1)])
def test_pixel_size_is_that_within_the_slice_in_millimetres(tmp_path, unit, factor):
    volume = nib.Nifti1Image(np.zeros((4, 6, 3), np.uint8), np.diag([1.5, 0.5, 8, 1]))
    volume.header.set_xyzt_units(unit)
    nib.save(volume, tmp_path / "a.nii.gz")
    assert files.pixel_size(tmp_path / "a.nii.gz") == pytest.approx((1.5 * factor, 0.5 * factor))
    assert files.pixel_size(save(tmp_path / "a.png", GREY)) is None


def test_volume_without_voxel_size_is_named(tmp_path):
    path = save_volume(tmp_path / "a.nii", np.zeros((4, 6, 3), np.uint8))
    header = bytearray(path.read_bytes())
    struct.pack_into("<f", header, 80, float("nan"))  # pixdim[1] of the NIfTI-1 header
    path.write_bytes(header)
    with pytest.raises(ValueError, match=r"a\.nii: voxels must have a size, got nan x 1"):
        files.pixel_size(path)


def test_rewritten_volume_is_not_read_from_memory(tmp_path):
    path = tmp_path / "m.nii.gz"
    for label in (1, 2):
        write_mask(path, np.full((2, 2, 1), label))
        assert read_mask(path, slice_index=0).unique().tolist() == [label]


def test_volume_of_four_axes_is_refused_but_trailing_ones_are_not(tmp_path):
    assert files.slice_count(save_volume(tmp_path / "b.nii", np.zeros((4, 4, 3, 1), np.uint8))) == 3
    assert files.slice_count(save_volume(tmp_path / "c.nii", np.zeros((4, 5), np.uint8))) == 1
    path = save_volume(tmp_path / "a.nii", np.zeros((4, 4, 3, 2), np.uint8))
    with pytest.raises(ValueError, match=r"a\.nii: a volume must have 3 axes, got shape \(4, 4, 3, 2\)"):
        read_image(path, slice_index=0)


def test_fractional_labels_are_refused(tmp_path):
    path = save_volume(tmp_path / "a.nii", np.full((2, 2, 1), 0.5, np.float32))
    with pytest.raises(ValueError, match=r"a\.nii: labels must be whole numbers, got 0\.5"):
        read_mask(path, slice_index=0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf"), (1e30, r"1e\+30")])
def test_labels_that_are_no_numbers_are_refused_without_a_warning(tmp_path, value, shown):
    data = np.zeros((2, 2, 1), np.float32)
    data[1, 0] = value
    path = save_volume(tmp_path / "a.nii", data)
    with pytest.raises(ValueError, match=rf"a\.nii: labels must be whole numbers, got {shown}$"):
        read_mask(path, slice_index=0)
    with pytest.raises(ValueError, match=r"a\.nii: labels must be whole numbers"):
        files.mask_values(path)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp", "a.nii", "a.nii.gz"])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty"])
def test_broken_file_is_one_line_that_names_it(tmp_path, name, damage):
    path = tmp_path / name
    noise = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    if files.is_volume(path):
        save_volume(path, noise[:, :, None])
    else:
        save(path, noise)
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[: len(whole) // 2], "garbage": b"no image" * 90, "empty": b""}[damage])
    with pytest.raises(ValueError, match="cannot be read as an image") as error:
        read_image(path, slice_index=0 if files.is_volume(path) else None)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_missing_file_is_named(tmp_path):
    for name in ("a.png", "a.nii"):
        with pytest.raises(FileNotFoundError, match=f"{name}: no such file"):
            read_image(tmp_path / name, slice_index=0)


def test_stack_of_frames_is_refused(tmp_path):
    pages = [Image.fromarray(GREY)] * 3
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=r"a\.tif: holds 3 frames"):
        read_image(tmp_path / "a.tif")


def test_refused_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "m.png"
    write_mask(path, GREY)
    before = path.read_bytes()
    for bad, message in (
        (np.full((2, 2), 256), r"whole numbers 0\.\.255, got 256\.\.256"),
        (np.full((2, 2), -1), r"got -1\.\.-1"),
        (np.full((2, 2), 0.5), r"got 0\.5\.\.0\.5"),
        (np.zeros((2, 2, 2)), r"must be \(H, W\), got \(2, 2, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            write_mask(path, bad)
    with pytest.raises(ValueError, match="JPEG changes labels"):
        write_mask(tmp_path / "m.jpg", GREY)
    with pytest.raises(ValueError, match="unknown image suffix"):
        write_mask(tmp_path / "m.gif", GREY)
    with pytest.raises(ValueError, match=r"mask of shape \(2, 2, 1\) for .*like\.nii of shape \(2, 2, 3\)"):
        like = save_volume(tmp_path / "like.nii", np.zeros((2, 2, 3), np.uint8))
        write_mask(tmp_path / "m.nii", np.zeros((2, 2, 1)), like=like)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["like.nii", "m.png"]


def test_failed_save_leaves_no_draft(tmp_path):
    (tmp_path / "m.png").mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(OSError, match=r"m\.png"):
        write_mask(tmp_path / "m.png", GREY)
    assert [p.name for p in tmp_path.iterdir()] == ["m.png"]


def test_listing_passes_over_foreign_files_and_refuses_twins(tmp_path):
    for name in ("b.png", "a.nii.gz", ".hidden.png", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert list(files.list_images(tmp_path)) == ["a", "b"]
    (tmp_path / "b.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"b\.jpg and b\.png have the same name"):
        files.list_images(tmp_path)
