"""Folders: what is read, how it is split, and one clear line for every way a folder can be wrong."""

import os
import shutil
from collections import Counter
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from folders import blocks, numbered, save, write_folder

from jcas.data import SPLITS, FileReader, Record, check, open_dataset, read_folder, write_mask
from jcas.schema import LabelSpace

ACDC = Path(__file__).parents[3] / "shared" / "data" / "acdc"


def write_volumes(root: Path, slices: dict[str, int]) -> Path:
    for kind, factor in (("images", 60), ("masks", 1)):
        (root / kind).mkdir(parents=True)
        for name, count in slices.items():
            data = np.stack([blocks(10, 14, turn=k) * factor for k in range(count)], axis=2)
            nib.save(nib.Nifti1Image(data.astype(np.uint8), np.eye(4)), root / kind / f"{name}.nii.gz")
    return root


def layout(dataset) -> dict[str, str]:
    return {record.id: record.split for record in dataset.records}


def test_folder_gives_image_labels_truth_and_weight(tmp_path):
    names = numbered(4)
    dataset = read_folder(write_folder(tmp_path, names, clean=list(names), weights=["i01"], channels=3))
    assert dataset.labels.names == ("background", "class1", "class2")
    assert (dataset.channels, dataset.name, len(dataset.records)) == (3, tmp_path.name, 4)
    record = dataset.records[1]
    sample = dataset.load(record, clean=True)
    mask = torch.from_numpy(blocks(12, 16, turn=1)).long()
    assert torch.equal(sample.noisy, mask) and torch.equal(sample.clean, 2 - mask)
    assert torch.equal(sample.image, (mask * 60).float().div(255).expand(3, -1, -1))
    assert torch.equal(sample.weight, (255 - mask * 100).float() / 255)
    assert (sample.id, sample.group) == ("i01", "i01")
    assert dataset.load(dataset.records[0], clean=True).weight is None
    assert all(dataset.truth_is_clean(split) for split in SPLITS)


def test_training_never_opens_the_truth(tmp_path):
    dataset = read_folder(write_folder(tmp_path, numbered(3), clean=list(numbered(3))))
    (tmp_path / "clean" / "i00.png").write_bytes(b"broken")
    assert dataset.load(dataset.records[0], clean=False).clean is None
    with pytest.raises(ValueError, match=r"clean/i00\.png: cannot be read"):
        dataset.load(dataset.records[0], clean=True)


def test_evaluation_without_clean_uses_the_training_labels_and_says_so(tmp_path):
    dataset = read_folder(write_folder(tmp_path, numbered(3)))
    sample = dataset.load(dataset.records[0], clean=True)
    assert torch.equal(sample.clean, sample.noisy)
    assert not dataset.truth_is_clean("test")


def test_trusted_ids_count_as_truth_and_must_exist(tmp_path):
    write_folder(tmp_path, numbered(3))
    (tmp_path / "dataset.yaml").write_text("trusted: [i00, i01, i02]\n")
    dataset = read_folder(tmp_path)
    assert dataset.trusted == {"i00", "i01", "i02"} and dataset.truth_is_clean("test")
    (tmp_path / "dataset.yaml").write_text("trusted: [i09]\n")
    with pytest.raises(ValueError, match=r"dataset\.yaml: trusted: no image named 'i09'"):
        read_folder(tmp_path)


def test_image_and_mask_may_differ_in_suffix(tmp_path):
    save(tmp_path / "images" / "a.b.jpg", np.full((8, 8), 90, np.uint8))
    save(tmp_path / "masks" / "a.b.tif", blocks(8, 8))
    assert [record.id for record in read_folder(tmp_path).records] == ["a.b"]


def test_description_names_classes_values_ignore_and_intensity(tmp_path):
    save(tmp_path / "images" / "a.png", np.array([[10, 20, 30, 10]], np.uint8))
    save(tmp_path / "masks" / "a.png", np.array([[0, 255, 7, 0]], np.uint8))
    (tmp_path / "dataset.yaml").write_text(
        "name: lesions\nclasses: [skin, lesion]\ncolours: [[1, 2, 3], [4, 5, 6]]\nvalues: [0, 255]\nignore: 7\n"
        "intensity: [10, 30]\n"
    )
    dataset = read_folder(tmp_path)
    sample = dataset.load(dataset.records[0], clean=False)
    assert sample.noisy.tolist() == [[0, 1, 255, 0]]
    assert sample.image.tolist() == [[[0, 0.5, 1, 0]]]
    assert (dataset.name, dataset.labels.names, dataset.labels.colours) == (
        "lesions",
        ("skin", "lesion"),
        ((1, 2, 3), (4, 5, 6)),
    )
    assert dataset.labels.ignore == 255


@pytest.mark.parametrize(
    ("ignore", "advice"),
    [
        (2, r"\[0, 1, 3\] of the masks; .*`classes: \[background, class1, class3\]` and `values: \[0, 1, 3\]`$"),
        (0, r"\[1, 2, 3\] of the masks; .*`classes: \[background, class2, class3\]` and `values: \[1, 2, 3\]`$"),
    ],
)
def test_an_ignored_label_among_unnamed_classes_is_refused_with_what_to_write(tmp_path, ignore, advice):
    save(tmp_path / "images" / "a.png", np.zeros((1, 4), np.uint8))
    save(tmp_path / "masks" / "a.png", np.array([[0, 1, 2, 3]], np.uint8))
    (tmp_path / "dataset.yaml").write_text(f"ignore: {ignore}\n")
    with pytest.raises(ValueError, match=rf"dataset\.yaml: ignore: {ignore} lies among the labels {advice}") as error:
        read_folder(tmp_path)
    keys = [part for part in str(error.value).split("`") if ": [" in part and "/" not in part]
    (tmp_path / "dataset.yaml").write_text("\n".join([f"ignore: {ignore}", *keys]))
    dataset = read_folder(tmp_path)
    left = [value for value in range(4) if value != ignore]
    expected = [255 if value == ignore else left.index(value) for value in range(4)]
    assert dataset.load(dataset.records[0], clean=False).noisy.tolist() == [expected]


def test_the_highest_label_may_be_ignored_without_naming_classes(tmp_path):
    save(tmp_path / "images" / "a.png", np.zeros((1, 4), np.uint8))
    save(tmp_path / "masks" / "a.png", np.array([[0, 1, 2, 3]], np.uint8))
    (tmp_path / "dataset.yaml").write_text("ignore: 3\n")
    dataset = read_folder(tmp_path)
    assert dataset.labels.names == ("background", "class1", "class2")
    assert dataset.load(dataset.records[0], clean=False).noisy.tolist() == [[0, 1, 2, 255]]


def test_a_reader_ignores_what_it_is_told_to_even_if_the_value_is_that_of_a_class(tmp_path):
    path = save(tmp_path / "a.png", np.array([[0, 1, 2]], np.uint8))
    record = Record("a", path, path, None, None, "train", "a")
    labels = LabelSpace(names=("a", "b", "c"))
    assert FileReader(ignore=1).mask(path, record, labels=labels).tolist() == [[0, 255, 2]]


def test_volume_gives_one_record_per_slice_in_one_split(tmp_path):
    dataset = read_folder(write_volumes(tmp_path, {"case1": 4, "case2": 3, "case3": 5, "case4": 2}))
    assert [r.id for r in dataset.records[:4]] == ["case1#000", "case1#001", "case1#002", "case1#003"]
    assert len(dataset.records) == 14 and dataset.channels == 1
    for case in ("case1", "case2", "case3", "case4"):
        assert len({r.split for r in dataset.records if r.group == case}) == 1
    sample = dataset.load(dataset.records[2], clean=True)
    assert torch.equal(sample.noisy, torch.from_numpy(blocks(10, 14, turn=2)).long())
    assert torch.allclose(sample.image[0], sample.noisy * 60 / 255)
    check(dataset)


def test_volume_with_other_slices_than_its_mask_is_refused(tmp_path):
    write_volumes(tmp_path, {"case1": 4})
    write_mask(tmp_path / "masks" / "case1.nii.gz", np.zeros((10, 14, 3)))
    with pytest.raises(ValueError, match=r"masks/case1\.nii\.gz: 3 slices, but its image case1\.nii\.gz has 4"):
        read_folder(tmp_path)
    (tmp_path / "masks" / "case1.nii.gz").unlink()
    save(tmp_path / "masks" / "case1.png", blocks(10, 14))
    with pytest.raises(ValueError, match=r"masks/case1\.png: its image case1\.nii\.gz is a volume"):
        read_folder(tmp_path)


def test_seeded_split_has_the_fractions_and_depends_on_the_seed_only(tmp_path):
    one = read_folder(write_folder(tmp_path / "one", numbered(40)))
    assert Counter(layout(one).values()) == {"train": 28, "val": 4, "test": 8}
    # The same names, created in the opposite order: another file-system order, the same split.
    other = write_folder(tmp_path / "other", dict(reversed(numbered(40).items())))
    assert layout(read_folder(other)) == layout(one)
    assert layout(read_folder(other, seed=1)) != layout(one)
    assert Counter(layout(read_folder(other, fractions=(0.5, 0.25, 0.25))).values()) == {
        "train": 20,
        "val": 10,
        "test": 10,
    }
    with pytest.raises(ValueError, match=r"fractions .* sum to 1, got \(0\.5, 0\.5, 0\.5\)"):
        read_folder(other, fractions=(0.5, 0.5, 0.5))


def test_small_folders_still_get_a_test_image(tmp_path):
    expected = {1: {"train": 1}, 2: {"train": 1, "test": 1}, 3: {"train": 1, "val": 1, "test": 1}}
    for count, parts in expected.items():
        dataset = read_folder(write_folder(tmp_path / str(count), numbered(count)))
        assert Counter(layout(dataset).values()) == parts


@pytest.mark.parametrize("column", ["group", "patient"])
def test_split_without_split_column_keeps_groups_together(tmp_path, column):
    write_folder(tmp_path, numbered(30))
    rows = [f"i{k:02d}.png,p{k % 10}" for k in range(30)]
    (tmp_path / "split.csv").write_text(f"name,{column}\n" + "\n".join(rows) + "\n")
    dataset = read_folder(tmp_path)
    assert Counter(layout(dataset).values()) == {"train": 21, "val": 3, "test": 6}
    for group in range(10):
        assert len({r.split for r in dataset.records if r.group == f"p{group}"}) == 1


def test_given_split_is_kept(tmp_path):
    write_folder(tmp_path, numbered(4))
    (tmp_path / "split.csv").write_text("name,patient,split\ni00,a,test\ni01.png,b,train\ni02,c,val\ni03,b,train\n")
    dataset = read_folder(tmp_path)
    assert layout(dataset) == {"i00": "test", "i01": "train", "i02": "val", "i03": "train"}
    assert [r.group for r in dataset.records] == ["a", "b", "c", "b"]
    assert [r.id for r in dataset.split("val")] == ["i02"]
    with pytest.raises(ValueError, match="unknown split 'dev', choose one of train, val, test"):
        dataset.split("dev")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            "name,split\ni00,train\ni01,dev\n",
            r"split\.csv, line 3: unknown split 'dev', choose one of train, val, test",
        ),
        ("name,split\ni00,train\ni09,val\n", r"line 3: no image named 'i09'"),
        ("name,split\ni00,train\ni00.png,val\n", r"line 3: 'i00' is listed twice"),
        ("name,split\ni00\n", r"line 2: expected 2 values \(name, split\)"),
        ("name,split\ni00,train,7\n", r"line 2: expected 2 values"),
        ("name,split\ni00,train\n", r"no row for image 'i01' \(1 such images\)"),
        ("file,split\ni00,train\n", r"needs the columns name and split \(or group\), got file, split"),
        ("", r"needs the columns name and split \(or group\), got none"),
    ],
)
def test_bad_split_is_refused(tmp_path, table, message):
    write_folder(tmp_path, numbered(2))
    (tmp_path / "split.csv").write_text(table)
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize(("column", "split"), [("patient", "test"), ("group", "val")])
def test_a_group_in_two_splits_is_refused_unless_its_column_is_dropped(tmp_path, column, split):
    write_folder(tmp_path, numbered(3))
    table = f"name,split,{column}\ni00,train,a\ni01,train,b\ni02,{split},a\n"
    (tmp_path / "split.csv").write_text(table)
    with pytest.raises(ValueError, match=rf"split\.csv: {column} 'a' is in train and in {split} .*") as error:
        read_folder(tmp_path)
    assert str(error.value).endswith(f"or drop the column {column} if each image may stand for itself")
    (tmp_path / "split.csv").write_text("\n".join(row.rpartition(",")[0] for row in table.splitlines()))
    assert layout(read_folder(tmp_path)) == {"i00": "train", "i01": "train", "i02": split}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_split_in_another_encoding_is_one_line_that_names_it(tmp_path, encoding):
    root = write_folder(tmp_path / "data", numbered(2))
    (root / "split.csv").write_text("name,split,group\ni00,train,Müller\ni01,test,b\n", encoding=encoding)
    with pytest.raises(ValueError, match=r"split\.csv: not UTF-8 text \(.* at byte \d+\); save it as UTF-8$"):
        read_folder(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clases: [a, b]\n", r"dataset\.yaml: unknown key 'clases', did you mean 'classes'\?"),
        ("zzz: 1\n", r"unknown key 'zzz', known keys: name, classes, colours, values, ignore, trusted, intensity"),
        ("classes: []\n", r"classes must name the background and at least one more, got \[\]"),
        ("classes: [a, a]\n", r"dataset\.yaml: class names must differ"),
        ("classes: [a, b]\ncolours: [[1, 2, 3]]\n", r"dataset\.yaml: 2 classes but 1 colours"),
        (
            "classes: [a, b]\ncolours: [[1, 2, 300], [1, 2, 3]]\n",
            r"colours\.0\.2: .*less than or equal to 255, got 300",
        ),
        ("classes: [a, b, c]\nvalues: [0, 255]\n", r"values must give one different number for each of classes"),
        ("classes: [a, b, c]\nignore: 1\n", r"ignore: 1 is also the value of a class"),
        ("classes: [a, b]\nvalues: [0, 255]\nignore: 255\n", r"ignore: 255 is also the value of a class"),
        ("ignore: none\n", r"dataset\.yaml: ignore: .*integer.*, got 'none'"),
        ("intensity: [5, 5]\n", r"intensity must be \[low, high\] with low < high, got \[5\.0, 5\.0\]"),
        ("- a\n", r"dataset\.yaml: must hold keys and values, got list"),
        ("a: [\n", r"dataset\.yaml: not valid YAML"),
    ],
)
def test_bad_description_is_refused_in_one_line(tmp_path, text, message):
    write_folder(tmp_path, numbered(2))
    (tmp_path / "dataset.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_folder(tmp_path)
    assert "\n" not in str(error.value)


def test_missing_parts_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no folder images/"):
        read_folder(tmp_path)
    write_folder(tmp_path, numbered(4))
    (tmp_path / "masks" / "i01.png").unlink()
    (tmp_path / "masks" / "i02.png").unlink()
    with pytest.raises(ValueError, match=r"images/i01\.png: no mask of this name in masks/ \(2 such images\)"):
        read_folder(tmp_path)
    shutil.rmtree(tmp_path / "masks")
    with pytest.raises(FileNotFoundError, match="no folder masks/"):
        read_folder(tmp_path)


@pytest.mark.parametrize("folder", ["masks", "clean", "weights"])
def test_file_without_image_is_named(tmp_path, folder):
    write_folder(tmp_path, numbered(2))
    save(tmp_path / folder / "stray.png", blocks(12, 16))
    with pytest.raises(ValueError, match=rf"{folder}/stray\.png: no image of this name in images/ \(1 such files\)"):
        read_folder(tmp_path)


def test_empty_folder_is_refused(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    (tmp_path / "images" / "readme.txt").write_text("nothing")
    with pytest.raises(ValueError, match=r"images: no images \(known suffixes: \.png"):
        read_folder(tmp_path)


def test_partial_truth_of_a_split_is_refused(tmp_path):
    write_folder(tmp_path, numbered(4), clean=["i00", "i02"])
    (tmp_path / "split.csv").write_text("name,split\ni00,test\ni01,test\ni02,val\ni03,train\n")
    with pytest.raises(ValueError, match=r"clean: holds 1 of the 2 test images, 'i01' is missing"):
        read_folder(tmp_path)
    (tmp_path / "split.csv").write_text("name,split\ni00,test\ni02,test\ni01,val\ni03,train\n")
    dataset = read_folder(tmp_path)
    assert dataset.truth_is_clean("test") and not dataset.truth_is_clean("val")


def test_check_names_the_first_file_that_is_wrong(tmp_path):
    write_folder(tmp_path, numbered(4), weights=["i03"])
    dataset = read_folder(tmp_path)
    check(dataset)
    for path, pixels, message in (
        ("masks/i02.png", blocks(12, 15), r"masks/i02\.png: size 12 x 15, but its image i02\.png has 12 x 16"),
        ("weights/i03.png", blocks(9, 9), r"weights/i03\.png: size 9 x 9, but its image i03\.png has 12 x 16"),
        (
            "masks/i01.png",
            blocks(12, 16) + 3,
            r"masks/i01\.png: label 3 is not allowed \(classes: 0\.\.2; ignore: 255\)",
        ),
        ("images/i01.png", np.zeros((12, 16, 3), np.uint8), r"images/i01\.png: 3 channels, but .* have 1"),
    ):
        before = (tmp_path / path).read_bytes()
        save(tmp_path / path, pixels)
        with pytest.raises(ValueError, match=message):
            check(dataset)
        (tmp_path / path).write_bytes(before)
    whole = (tmp_path / "images" / "i03.png").read_bytes()
    (tmp_path / "images" / "i03.png").write_bytes(whole[:60])
    with pytest.raises(ValueError, match=r"images/i03\.png: cannot be read as an image"):
        check(dataset)


def test_check_tells_classes_that_no_training_label_shows(tmp_path):
    write_folder(tmp_path, numbered(3), clean=["i00", "i01", "i02"])
    (tmp_path / "dataset.yaml").write_text("classes: [background, shaft, wrist, clasper]\n")
    (tmp_path / "split.csv").write_text("name,split\ni00,train\ni01,val\ni02,test\n")
    assert check(read_folder(tmp_path)) == ["clasper"]
    save(tmp_path / "masks" / "i00.png", np.ones((12, 16), np.uint8))
    assert check(read_folder(tmp_path)) == ["background", "wrist", "clasper"], "val and test labels do not count"
    assert check(read_folder(tmp_path), use_clean_as_labels=True) == ["clasper"]
    save(tmp_path / "masks" / "i00.png", np.full((12, 16), 255, np.uint8))
    with pytest.raises(ValueError, match="every pixel of the training labels is ignored, there is nothing to learn"):
        check(read_folder(tmp_path))


def test_odd_image_is_named_even_when_it_comes_first(tmp_path):
    write_folder(tmp_path, numbered(3))
    save(tmp_path / "images" / "i00.png", np.zeros((12, 16, 3), np.uint8))
    with pytest.raises(ValueError, match=r"i00\.png: 3 channels"):
        check(read_folder(tmp_path))


def test_masks_that_are_no_labels_are_refused_with_advice(tmp_path):
    save(tmp_path / "images" / "a.png", np.zeros((4, 4), np.uint8))
    for mask, message in (
        (np.eye(4, dtype=np.uint8) * 255, r"no label but \[0, 255\].*`values: \[0, 255\]`"),
        (np.zeros((4, 4), np.uint8), r"no label but \[0\].*name the classes in dataset\.yaml"),
        (np.eye(4, dtype=np.uint8) * 128, r"label 128 does not look like a class"),
    ):
        save(tmp_path / "masks" / "a.png", mask)
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path)


def test_masks_of_0_and_255_are_read_once_the_advice_is_taken(tmp_path):
    save(tmp_path / "images" / "a.png", np.zeros((1, 3), np.uint8))
    save(tmp_path / "masks" / "a.png", np.array([[0, 255, 0]], np.uint8))
    (tmp_path / "dataset.yaml").write_text("classes: [background, foreground]\nvalues: [0, 255]\n")
    dataset = read_folder(tmp_path)
    assert dataset.load(dataset.records[0], clean=False).noisy.tolist() == [[0, 1, 0]]
    save(tmp_path / "masks" / "a.png", np.array([[0, 255, 9]], np.uint8))
    with pytest.raises(ValueError, match=r"label 9 is not allowed \(classes: 0, 255; ignore: none\)"):
        dataset.load(dataset.records[0], clean=False)


def test_check_of_many_files_shows_progress_on_a_terminal_only(tmp_path, capsys, monkeypatch):
    dataset = read_folder(write_folder(tmp_path, {f"i{k:03d}": (4, 6) for k in range(201)}))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    check(dataset)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    check(dataset)
    seen = capsys.readouterr()
    assert "checking" in seen.err and seen.out == ""


def test_open_dataset_knows_a_plain_folder_and_refuses_the_rest(tmp_path):
    assert len(open_dataset(write_folder(tmp_path / "a", numbered(2))).records) == 2
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"b: no dataset \(expected images/ and masks/"):
        open_dataset(tmp_path / "b")
    with pytest.raises(FileNotFoundError, match="c: no such folder"):
        open_dataset(tmp_path / "c")


@pytest.mark.skipif(not ACDC.is_dir(), reason="the ACDC slices are not here")
def test_acdc_is_read_by_patient():
    dataset = open_dataset(ACDC)
    assert len(dataset.records) == 921 and dataset.labels.num_classes == 4
    assert [len(dataset.split(split)) for split in SPLITS] == [641, 91, 189]
    patients = [{record.group for record in dataset.split(split)} for split in SPLITS]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 100
    for record in dataset.records[:: len(dataset.records) // 20]:
        sample = dataset.load(record, clean=True)
        assert sample.image.shape[1:] == sample.noisy.shape == dataset.size(record)
        assert os.path.samefile(record.image.parent, ACDC / "images")


def parted(root: Path, splits: dict[str, tuple[str, str]]) -> Path:
    """A folder of images whose split.csv says (split, group) of each."""
    write_folder(root, numbered(len(splits)))
    lines = [f"{name},{split},{group}\n" for name, (split, group) in splits.items()]
    (root / "split.csv").write_text("name,split,group\n" + "".join(lines))
    return root


def test_where_no_image_validates_whole_groups_of_the_training_images_do(tmp_path):
    patients = {name: ("test" if k >= 48 else "train", f"p{k // 3}") for k, name in enumerate(numbered(60))}
    dataset = read_folder(parted(tmp_path, patients))
    held = dataset.with_validation(1 / 8)
    assert layout(held) == layout(dataset.with_validation(1 / 8))
    assert len(held.split("val")) == 6 and len(held.split("train")) == 42  # two patients of three images: 1/8 of 48
    assert {r.group for r in held.split("val")}.isdisjoint(r.group for r in held.split("train"))
    assert held.split("test") == dataset.split("test")
    assert held.with_validation(1 / 2) is held  # has some
    assert dataset.with_validation(0) is dataset


def test_of_a_few_large_groups_the_smallest_validates(tmp_path):
    names = {
        name: ("train", "small" if k < 10 else "middle" if k < 22 else "large") for k, name in enumerate(numbered(40))
    }
    held = read_folder(parted(tmp_path, names)).with_validation(1 / 8)
    assert {record.group for record in held.split("val")} == {"small"}


@pytest.mark.parametrize(("images", "group"), [(15, "own"), (40, "shared")])
@pytest.mark.parametrize("share", [1 / 8, 0.6])
def test_few_images_and_a_single_group_are_not_parted(tmp_path, images, group, share):
    names = {name: ("train", name if group == "own" else group) for name in numbered(images)}
    dataset = read_folder(parted(tmp_path, names))
    assert dataset.with_validation(share) is dataset


def test_however_large_the_share_a_group_is_left_to_train_on(tmp_path):
    names = {name: ("train", "a" if k < 10 else "b") for k, name in enumerate(numbered(20))}
    held = read_folder(parted(tmp_path, names)).with_validation(0.9)
    assert len(held.split("train")) == len(held.split("val")) == 10


def test_every_class_has_a_colour_of_its_own():
    colours = LabelSpace(tuple(map(str, range(30)))).colours
    apart = [sum(abs(a - b) for a, b in zip(one, other, strict=True)) for one in colours for other in colours]
    assert sorted(apart)[len(colours)] > 15  # the nearest two; black is the background's alone
