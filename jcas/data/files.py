"""Read and write image files: PNG, JPEG, TIFF, BMP and NIfTI volumes, slice by slice.

Axis order is always (rows, columns) as an image viewer shows it; of a NIfTI volume stored as (i, j, k) the slice
``k`` is the array ``[:, :, k]`` as stored, so rows run along i and columns along j. Pillow and nibabel are called
directly: MONAI's readers swap the axes of flat images and do not tell palette indices from grey values.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import tifffile
import torch
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError
from PIL import Image, ImageFile, UnidentifiedImageError
from torch import Tensor

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
VOLUME_SUFFIXES = (".nii", ".nii.gz")
ROBUST_PERCENTILES = (0.5, 99.5)
"""Deep images (16 bit, float) carry no natural white: these percentiles of the file become 0 and 1."""

_UNREADABLE = (
    OSError, EOFError, SyntaxError, ValueError, IndexError, KeyError, struct.error, zlib.error,
    Image.DecompressionBombError, ImageFileError, HeaderDataError, tifffile.TiffFileError,
)  # fmt: skip
_LOSSY = (".jpg", ".jpeg")
_MILLIMETRES = {"mm": 1.0, "meter": 1000.0, "micron": 0.001}
_TIFF = (".tif", ".tiff")
_ALPHA = (tifffile.EXTRASAMPLE.ASSOCALPHA, tifffile.EXTRASAMPLE.UNASSALPHA)
_GREY = ("1", "L", "LA", "La", "I", "F")


def stem(path: Path) -> str:
    """The file name without its image suffix.

    >>> stem(Path("masks/case1.nii.gz")), stem(Path("a.b.png"))
    ('case1', 'a.b')
    """
    suffix = _suffix(path)
    return path.name[: -len(suffix)] if suffix else path.name


def is_volume(path: Path) -> bool:
    """Whether the file is a NIfTI volume.

    >>> is_volume(Path("case1.nii.gz")), is_volume(Path("case1.png"))
    (True, False)
    """
    return _suffix(path) in VOLUME_SUFFIXES


def list_images(folder: Path) -> dict[str, Path]:
    """All image files of a folder by stem, sorted; hidden and foreign files are passed over."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not _suffix(path) or not path.is_file():
            continue
        if stem(path) in found:
            raise ValueError(f"{folder}: {found[stem(path)].name} and {path.name} have the same name")
        found[stem(path)] = path
    return found


def image_size(path: Path) -> tuple[int, int]:
    """Rows and columns, from the header alone."""
    with _readable(path):
        if is_volume(path):
            shape = _volume_shape(path)
            return shape[0], shape[1]
        if (deep := _deep_tiff(path)) is not None:
            return deep.rows, deep.columns
        with Image.open(path) as picture:
            return picture.height, picture.width


def image_channels(path: Path) -> int:
    """Number of channels that :func:`read_image` will give, from the header alone."""
    with _readable(path):
        if is_volume(path):
            return 1
        if (deep := _deep_tiff(path)) is not None:
            return deep.channels
        with Image.open(path) as picture:
            return 1 if picture.mode in _GREY or picture.mode.startswith("I;16") else 3


def slice_count(path: Path) -> int:
    """Number of slices of a volume (along its last axis), from the header alone."""
    with _readable(path):
        return _volume_shape(path)[2]


def pixel_size(path: Path) -> tuple[float, float] | None:
    """Rows' and columns' distance in a slice of a volume, in millimetres; None for flat files, which hold no true one.

    Volumes that do not name their unit are taken to be in millimetres, as nearly all are.
    """
    if not is_volume(path):
        return None
    with _readable(path):
        header = nib.load(path).header
        unit = _MILLIMETRES.get(header.get_xyzt_units()[0], 1.0)
        rows, columns = (float(step) * unit for step in header.get_zooms()[:2])
    if not (0 < rows < np.inf and 0 < columns < np.inf):
        raise ValueError(f"{path}: voxels must have a size, got {rows:g} x {columns:g}")
    return rows, columns


def read_image(
    path: Path,
    *,
    intensity: tuple[float, float] | None = None,
    slice_index: int | None = None,
) -> Tensor:  # (channels, H, W) float32, 0..1
    """Read an image as grey (1 channel) or RGB (3 channels); alpha is dropped, palettes are looked up.

    8-bit files are divided by 255. Deep files (16 bit, 32 bit, float) are stretched so that their 0.5th and 99.5th
    percentiles (of the whole volume for NIfTI; NaN left out and set to 0) become 0 and 1, and clipped. A fixed
    ``intensity=(lo, hi)`` replaces both rules: stored values lo..hi become 0..1. Pillow keeps only the upper 8 of 16
    bits of an RGB PNG; save deep colour as TIFF.
    """
    if intensity is not None and not intensity[0] < intensity[1]:
        raise ValueError(f"intensity must be (low, high) with low < high, got {intensity}")
    if is_volume(path):
        volume = _scaled_volume(path, _stamp(path), intensity)
        return torch.from_numpy(np.ascontiguousarray(volume[None, :, :, _slice(path, slice_index)]))
    pixels = _scaled(_picture(path, palette=False), intensity)
    return torch.from_numpy(np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)))


def read_mask(path: Path, *, slice_index: int | None = None) -> Tensor:  # (H, W) int64
    """Read labels as stored: grey values, palette indices or, in NIfTI, whole numbers."""
    if is_volume(path):
        labels = _whole_volume(path, _stamp(path))[:, :, _slice(path, slice_index)]
    else:
        labels = _picture(path, palette=True)
        if labels.ndim == 3:
            if (labels != labels[:, :, :1]).any():
                raise ValueError(f"{path}: a mask must have one channel, got a colour image")
            labels = labels[:, :, 0]
    return torch.from_numpy(_whole(path, labels))


def read_colours(path: Path) -> np.ndarray:  # (H, W, 3) uint8
    """Read a colour-coded label image as stored; grey repeats in all three channels."""
    with _readable(path), Image.open(path) as picture:
        return np.array(picture.convert("RGB"))


def mask_values(path: Path) -> set[int]:
    """All labels that occur in a mask file (in all slices of a volume)."""
    if is_volume(path):
        return set(distinct(torch.from_numpy(_whole(path, _whole_volume(path, _stamp(path))))))
    return set(distinct(read_mask(path)))


def distinct(labels: Tensor) -> list[int]:
    """The different values of an int64 tensor, ascending; counting is ten times faster than sorting a mask."""
    if labels.numel() and 0 <= labels.min() and labels.max() < 65536:
        return labels.flatten().bincount().nonzero().flatten().tolist()
    return labels.unique().tolist()


def read_weight(path: Path, *, slice_index: int | None = None) -> Tensor:  # (H, W) float32, 0..1
    """Read trust per pixel: 8 bit over 255, 16 bit over 65535, float as stored (must lie in 0..1)."""
    if is_volume(path):
        weight = _whole_volume(path, _stamp(path))[:, :, _slice(path, slice_index)]
    else:
        weight = _picture(path, palette=True)
    if weight.ndim != 2:
        raise ValueError(f"{path}: weights must have one channel, got {weight.shape[2]}")
    full = float(np.iinfo(weight.dtype).max) if weight.dtype in (np.uint8, np.uint16) else 1.0
    weight = weight.astype(np.float32) / full
    if not ((weight >= 0) & (weight <= 1)).all():  # also catches NaN
        raise ValueError(f"{path}: weights must lie in 0..1, got {weight.min():g}..{weight.max():g}")
    return torch.from_numpy(weight)


def write_image(path: Path, image: Tensor | np.ndarray) -> None:
    """Write a (1 or 3, H, W) or (H, W) image in 0..1 as an 8-bit file; also fit for weights."""
    pixels = np.asarray(image, dtype=np.float32)
    if pixels.ndim == 3:
        pixels = pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise ValueError(f"{path}: an image must be (1 or 3, H, W) or (H, W), got {tuple(np.shape(image))}")
    _save_picture(path, (pixels.clip(0, 1) * 255).round().astype(np.uint8))


def write_mask(path: Path, mask: Tensor | np.ndarray, *, like: Path | None = None) -> None:
    """Write labels 0..255 as an 8-bit file, atomically: a reader sees the whole file or none.

    Args:
        path: a lossless picture (.png, .tif, .bmp) for a mask (H, W), or NIfTI for a mask (H, W, S).
        mask: whole numbers 0..255.
        like: volume whose affine and header a NIfTI mask keeps (its data type becomes uint8).
    """
    labels = np.asarray(mask)
    if labels.size and (labels.min() < 0 or labels.max() > 255 or (labels != np.floor(labels)).any()):
        raise ValueError(f"{path}: labels must be whole numbers 0..255, got {labels.min()}..{labels.max()}")
    labels = labels.astype(np.uint8)
    if is_volume(path):
        _save_volume(path, labels, like)
        return
    if _suffix(path) in _LOSSY:
        raise ValueError(f"{path}: JPEG changes labels, write masks as .png")
    if labels.ndim != 2:
        raise ValueError(f"{path}: a mask must be (H, W), got {labels.shape}")
    _save_picture(path, labels)


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return next((s for s in (*VOLUME_SUFFIXES, *IMAGE_SUFFIXES) if name.endswith(s)), "")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into one line that names the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        yield
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        # Our own errors name the file already; decoders mostly do not.
        message = reason if reason.startswith(str(path)) else f"{path}: cannot be read as an image ({reason})"
        raise ValueError(message) from error


def _picture(path: Path, *, palette: bool) -> np.ndarray:
    """Decode a flat file into (H, W) or (H, W, 3) of its own depth; ``palette`` keeps palette indices."""
    with _readable(path):
        if (deep := _deep_tiff(path)) is not None:
            return deep.decode(path)
    with _readable(path), Image.open(path) as picture:
        frames = getattr(picture, "n_frames", 1)
        if frames > 1:
            raise ValueError(f"{path}: holds {frames} frames, one image per file is expected")
        depth = _colour_depth(picture)
        picture.load()
        if picture.mode == "P" and palette:
            return np.array(picture)
        if picture.mode == "1":
            # Bilevel files hold 0 and 1: labels as they are, grey as black and white.
            return np.array(picture).astype(np.uint8) * (1 if palette else 255)
        if picture.mode in ("LA", "La"):
            return np.array(picture.convert("L"))
        if picture.mode in _GREY or picture.mode.startswith("I;16"):
            pixels = np.array(picture)
            return pixels.astype(pixels.dtype.newbyteorder("="))
        colour = np.array(picture.convert("RGB"))
        return colour.astype(np.uint16) * 257 if depth == 16 else colour


@dataclass(frozen=True)
class _DeepTiff:
    """A TIFF that Pillow reads in 8 bits or not at all: deep colour, planes one after the other, 64-bit grey."""

    rows: int
    columns: int
    channels: int  # 1 or 3, alpha left out
    sample_axis: int | None  # where the channels stand in the stored array; None: there is only one

    def decode(self, path: Path) -> np.ndarray:
        """The pixels, (H, W) or (H, W, 3)."""
        pixels = tifffile.imread(path, key=0)
        if self.sample_axis is not None:
            pixels = np.moveaxis(pixels, self.sample_axis, -1)[:, :, : self.channels]
        return pixels[:, :, 0] if self.channels == 1 and pixels.ndim == 3 else pixels


def _deep_tiff(path: Path) -> _DeepTiff | None:
    """Layout of a TIFF that tifffile must read, from its header; None for all that Pillow reads right."""
    if _suffix(path) not in _TIFF:
        return None
    with tifffile.TiffFile(path) as tiff:
        if len(tiff.pages) > 1:
            raise ValueError(f"{path}: holds {len(tiff.pages)} frames, one image per file is expected")
        page = tiff.pages.first
        samples = page.samplesperpixel
        if page.photometric == tifffile.PHOTOMETRIC.RGB:
            channels = min(samples, 3)
        elif page.photometric in (tifffile.PHOTOMETRIC.MINISBLACK, tifffile.PHOTOMETRIC.MINISWHITE):
            channels = samples - sum(extra in _ALPHA for extra in page.extrasamples)
        else:
            return None  # palettes, YCbCr of JPEG and the like: Pillow's
        if channels not in (1, 3):
            raise ValueError(f"{path}: {channels} channels, an image has 1 (grey) or 3 (RGB)")
        pillow_shows_it = (
            _pillow_knows(path)
            if samples == 1
            else page.bitspersample <= 8 and (channels == 1 or page.photometric == tifffile.PHOTOMETRIC.RGB)
        )
        if pillow_shows_it:
            return None
        axis = page.axes.index("S") if samples > 1 else None
        return _DeepTiff(page.imagelength, page.imagewidth, channels, axis)


def _pillow_knows(path: Path) -> bool:
    try:
        with Image.open(path):
            return True
    except UnidentifiedImageError:
        return False


def _colour_depth(picture: ImageFile.ImageFile) -> int:
    """Bits per channel of a colour file; Pillow's mode says RGB for 8 and for 16."""
    if picture.mode not in ("RGB", "RGBA", "RGBX"):
        return 8
    return 16 if any(";16" in str(tile[3]) for tile in picture.tile) else 8


def _scaled(pixels: np.ndarray, intensity: tuple[float, float] | None) -> np.ndarray:
    if intensity is None:
        if pixels.dtype == np.uint8:
            return pixels.astype(np.float32) / 255
        finite = pixels[np.isfinite(pixels)]
        low, high = np.percentile(finite, ROBUST_PERCENTILES) if finite.size else (0.0, 0.0)
        if low == high and finite.size:  # almost constant: a few bright pixels are all there is
            low, high = finite.min(), finite.max()
    else:
        low, high = intensity
    width = max(float(high) - float(low), float(np.finfo(np.float32).tiny))
    scaled = ((pixels.astype(np.float64) - float(low)) / width).clip(0, 1)
    return np.nan_to_num(scaled, nan=0.0).astype(np.float32)


def _whole(path: Path, labels: np.ndarray) -> np.ndarray:
    if labels.dtype.kind == "f":
        # Also false for NaN, infinity and numbers too large for an integer, which astype would only warn of.
        whole = (np.abs(labels) < 2**53) & (np.floor(labels) == labels)
        if not whole.all():
            raise ValueError(f"{path}: labels must be whole numbers, got {labels[~whole].flat[0]:g}")
    return labels.astype(np.int64)


def _stamp(path: Path) -> int:
    """Modification time: a rewritten volume must not come out of the memory of its former self."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    return path.stat().st_mtime_ns


def _slice(path: Path, slice_index: int | None) -> int:
    if slice_index is None:
        raise ValueError(f"{path}: a volume needs slice_index")
    return slice_index


def _volume_shape(path: Path) -> tuple[int, int, int]:
    shape = tuple(nib.load(path).shape)
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3:
        raise ValueError(f"{path}: a volume must have 3 axes, got shape {shape}")
    return shape


# Slices of one volume are mostly read in a row; decompressing it once serves them all.
@lru_cache(maxsize=4)
def _whole_volume(path: Path, stamp: int) -> np.ndarray:
    with _readable(path):
        shape = _volume_shape(path)
        return np.asarray(nib.load(path).dataobj).reshape(shape)


@lru_cache(maxsize=2)
def _scaled_volume(path: Path, stamp: int, intensity: tuple[float, float] | None) -> np.ndarray:
    return _scaled(_whole_volume(path, stamp), intensity)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A hidden name beside ``path`` that takes its place when the block ends well and vanishes when not."""
    draft = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _save_picture(path: Path, pixels: np.ndarray) -> None:
    if _suffix(path) not in IMAGE_SUFFIXES:
        raise ValueError(f"{path}: unknown image suffix, use one of {', '.join(IMAGE_SUFFIXES)}")
    with _replacing(path) as draft:
        Image.fromarray(pixels).save(draft)


def _save_volume(path: Path, labels: np.ndarray, like: Path | None) -> None:
    if labels.ndim != 3:
        raise ValueError(f"{path}: a volume mask must be (H, W, S), got {labels.shape}")
    affine: Any = np.eye(4)
    header: Any = None
    if like is not None:
        with _readable(like):
            source = nib.load(like)
            affine, header = source.affine, source.header.copy()
            if _volume_shape(like) != labels.shape:
                raise ValueError(f"{path}: mask of shape {labels.shape} for {like} of shape {source.shape}")
        header.set_slope_inter(1, 0)
    volume = nib.Nifti1Image(labels, affine, header)
    volume.set_data_dtype(np.uint8)
    with _replacing(path) as draft:
        nib.save(volume, draft)
