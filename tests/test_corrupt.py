"""A corrupted copy: noisy masks, untouched truth, rates that agree with counting by hand."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from jcas.core import symmetric
from jcas.corrupt import choose, corrupt, count, measure
from jcas.data.layout import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.noise import Ellipse, Symmetric
from jcas.schema import LabelSpace

LABELS = LabelSpace(("background", "one", "two"))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_dataset(
        tmp_path_factory.mktemp("corrupt") / "set", count=12, size=(40, 50), val_fraction=0.25, test_fraction=0.25
    )


def masks_of(root: Path, folder: str = "masks") -> dict[str, np.ndarray]:
    return {path.stem: np.asarray(Image.open(path)) for path in sorted((root / folder).iterdir())}


def described(root: Path) -> dict:
    return json.loads((root / "noise.json").read_text())


def test_copy_is_a_dataset_with_noisy_masks_and_true_clean_labels(source, tmp_path):
    out = corrupt(source, noise="symmetric", parameters={"rate": 0.4}, out=tmp_path / "out", progress=False)
    before, after = open_dataset(source), open_dataset(out)
    assert (after.labels, after.name) == (before.labels, before.name)
    assert [(r.id, r.split, r.group) for r in after.records] == [(r.id, r.split, r.group) for r in before.records]
    truth, noisy, clean = masks_of(source), masks_of(out), masks_of(out, "clean")
    for record in after.records:
        assert np.array_equal(clean[record.id], truth[record.id])
        wrong = (noisy[record.id] != truth[record.id]).mean()
        assert wrong == 0 if record.split == "test" else 0.3 < wrong < 0.5
    for image in (source / "images").iterdir():
        assert (out / "images" / image.name).read_bytes() == image.read_bytes()
    assert after.truth_is_clean("train")


def test_same_seed_gives_same_bytes_with_any_number_of_workers(source, tmp_path):
    noise = Ellipse(num_classes=4)
    first = corrupt(source, noise=noise, out=tmp_path / "a", seed=5, progress=False)
    again = corrupt(source, noise=noise, out=tmp_path / "b", seed=5, workers=3, progress=False)
    other = corrupt(source, noise=noise, out=tmp_path / "c", seed=6, progress=False)
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    assert any(not np.array_equal(a, masks_of(other)[name]) for name, a in masks_of(first).items())


def test_noise_json_tells_noise_truth_and_what_was_measured(source, tmp_path):
    out = corrupt(source, noise="symmetric", parameters={"rate": 0.4}, out=tmp_path / "out", seed=3, progress=False)
    about = described(out)
    assert (about["noise"], about["parameters"], about["seed"]) == ("symmetric", {"rate": 0.4}, 3)
    assert np.allclose(about["true_transition"], symmetric(4, 0.4))
    assert np.allclose(about["empirical_transition"], symmetric(4, 0.4), atol=0.1)
    assert about["images"] == about["corrupted_images"] == 9
    truth, noisy = masks_of(out, "clean"), masks_of(out)
    changed = [r.id for r in open_dataset(out).records if r.split != "test"]
    clean_pixels, noisy_pixels = (np.stack([m[name] for name in changed]) for m in (truth, noisy))
    assert about["class_noise_rate"] == pytest.approx((clean_pixels != noisy_pixels).mean())
    assert about["prior"] == pytest.approx([(clean_pixels == c).mean() for c in range(4)])
    assert about["area_ratios"]["wrist"] == pytest.approx((noisy_pixels == 2).sum() / (clean_pixels == 2).sum())
    assert np.sum(about["counts"]) == about["pixels"] == clean_pixels.size
    assert str(source.parent) not in (out / "noise.json").read_text()


def test_contact_sheet_is_a_picture(source, tmp_path):
    out = corrupt(source, noise="polygon", out=tmp_path / "out", progress=False)
    sheet = np.asarray(Image.open(out / "contact_sheet.png").convert("RGB"))
    assert sheet.shape[1] > 1000 and len(np.unique(sheet.reshape(-1, 3), axis=0)) > 1000


def test_affinity_noise_rate_equals_counting_all_pairs():
    rng = np.random.default_rng(0)
    images = {}
    rates = []
    for name in "abc":
        clean = rng.integers(3, size=(7, 6)).astype(np.uint8)
        noisy = np.where(rng.random((7, 6)) < 0.4, rng.integers(3, size=(7, 6)), clean).astype(np.uint8)
        clean[0, :2] = noisy[0, :2] = 255
        images[name] = clean, noisy
        x, y = clean[clean != 255], noisy[clean != 255]
        rates.append(((x[:, None] == x) != (y[:, None] == y)).mean())
    measured = measure({name: count(*pair, num_classes=3) for name, pair in images.items()}, labels=LABELS)
    assert measured["affinity_noise_rate"] == pytest.approx(np.mean(rates))
    x, y = (np.concatenate([pair[i][pair[0] != 255] for pair in images.values()]) for i in (0, 1))
    assert measured["affinity_noise_rate_pooled"] == pytest.approx(((x[:, None] == x) != (y[:, None] == y)).mean())
    assert measured["pixels"] == 3 * 40


def test_images_without_a_labelled_pixel_do_not_break_the_measures():
    empty = np.full((4, 4), 255, np.uint8)
    full = np.ones((4, 4), np.uint8)
    counts = {"empty": count(empty, empty, num_classes=3), "full": count(full, full, num_classes=3)}
    measured = measure(counts, labels=LABELS)
    assert measured["class_noise_rate"] == measured["affinity_noise_rate"] == 0
    assert measured["area_ratios"] == {"background": None, "one": 1.0, "two": None}
    with pytest.raises(ValueError, match="every pixel is ignored"):
        measure({"empty": counts["empty"]}, labels=LABELS)


def test_share_is_exact_and_does_not_depend_on_order():
    ids = [f"image{i}" for i in range(40)]
    chosen = choose(ids, share=0.3, seed=0)
    assert len(chosen) == 12
    assert chosen == choose(reversed(ids), share=0.3, seed=0) != choose(ids, share=0.3, seed=1)
    assert chosen < choose(ids, share=0.6, seed=0)


def test_share_of_images_is_corrupted_and_the_rest_is_clean(source, tmp_path):
    out = corrupt(source, noise="pair_flip", out=tmp_path / "out", share=0.34, progress=False)
    truth, noisy = masks_of(out, "clean"), masks_of(out)
    touched = [name for name in truth if not np.array_equal(truth[name], noisy[name])]
    assert len(touched) == described(out)["corrupted_images"] == 3


def test_splits_choose_what_is_corrupted(source, tmp_path):
    out = corrupt(source, noise="pair_flip", out=tmp_path / "out", splits=("test",), progress=False)
    truth, noisy = masks_of(out, "clean"), masks_of(out)
    touched = {name for name in truth if not np.array_equal(truth[name], noisy[name])}
    assert touched == {record.id for record in open_dataset(source).split("test")}


def test_second_corruption_starts_from_the_truth(source, tmp_path):
    first = corrupt(source, noise="symmetric", out=tmp_path / "first", progress=False)
    second = corrupt(first, noise="ellipse", out=tmp_path / "second", progress=False)
    direct = corrupt(source, noise="ellipse", out=tmp_path / "direct", progress=False)
    for folder in ("masks", "clean"):
        ours, theirs = masks_of(second, folder), masks_of(direct, folder)
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_pseudo_labels_see_the_image(source, tmp_path):
    def dark(image: torch.Tensor) -> np.ndarray:
        return (image.mean(0) < 0.2).long().numpy()

    parameters = {"predictor": dark, "source": "a threshold"}
    out = corrupt(source, noise="sfda", parameters=parameters, out=tmp_path / "out", workers=2, progress=False)
    dataset = open_dataset(out)
    for record in dataset.split("train"):
        sample = dataset.load(record, clean=False)
        assert np.array_equal(sample.noisy.numpy(), dark(sample.image))
    assert described(out)["parameters"] == {"source": "a threshold"} and described(out)["true_transition"] is None


def test_groups_are_held_out_for_validation(source, tmp_path):
    before = open_dataset(source)
    group = before.split("train")[0].group
    out = corrupt(source, noise="ellipse", out=tmp_path / "out", validation=[group], progress=False)
    after = {record.id: record.split for record in open_dataset(out).records}
    for record in before.records:
        assert after[record.id] == ("val" if record.group == group else record.split)
    for groups, message in (
        (["nobody"], "'nobody' is no group of the training images"),
        ([before.split("test")[0].group], "is no group of the training images"),
        ([record.group for record in before.split("train")], "would take every training image"),
    ):
        with pytest.raises(ValueError, match=message):
            corrupt(source, noise="ellipse", out=tmp_path / "no", validation=groups, progress=False)
    assert not (tmp_path / "no").exists()


@pytest.fixture
def small(tmp_path) -> Path:
    """Four grey images with an ignored corner, mask values 0 and 200, weights, groups and a trusted image."""
    root = tmp_path / "small"
    for folder in ("images", "masks", "weights"):
        (root / folder).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c", "d"):
        Image.fromarray(rng.integers(255, size=(30, 30)).astype(np.uint8)).save(root / "images" / f"{name}.bmp")
        mask = np.zeros((30, 30), np.uint8)
        mask[8:20, 5:25] = 200
        mask[:5, :5] = 255
        Image.fromarray(mask).save(root / "masks" / f"{name}.png")
    Image.fromarray(np.full((30, 30), 128, np.uint8)).save(root / "weights" / "a.png")
    (root / "split.csv").write_text("name,split,patient\na,train,p1\nb,train,p1\nc,val,p2\nd,test,p3\n")
    (root / "dataset.yaml").write_text("classes: [background, lesion]\nvalues: [0, 200]\ntrusted: [b]\n")
    return root


def test_values_weights_groups_trust_and_ignore_are_carried_over(small, tmp_path):
    out = corrupt(small, noise=Symmetric(num_classes=2, rate=0.3), out=tmp_path / "out", progress=False)
    dataset = open_dataset(out)
    records = {record.id: record for record in dataset.records}
    assert {record.group for record in dataset.records} == {"p1", "p2", "p3"}
    assert records["a"].weight is not None and records["b"].weight is None
    assert dataset.trusted == {"b"} and "values" not in yaml.safe_load((out / "dataset.yaml").read_text())
    noisy = masks_of(out)
    assert all((mask[:5, :5] == 255).all() and (mask[5:] < 2).all() for mask in noisy.values())
    truth = masks_of(out, "clean")["a"]
    assert np.array_equal(noisy["b"], truth) and np.array_equal(noisy["d"], truth)
    assert not np.array_equal(noisy["a"], truth)
    assert described(out)["pixels"] == 3 * (900 - 25)


def test_volumes_stay_volumes(tmp_path):
    root = tmp_path / "volumes"
    affine = np.diag([2.0, 2.0, 5.0, 1.0])
    rng = np.random.default_rng(0)
    for name in ("case1", "case2"):
        mask = np.zeros((24, 20, 4), np.uint8)
        mask[6:18, 5:15, 1:] = 1
        for folder, volume in (("images", rng.random((24, 20, 4)).astype(np.float32)), ("masks", mask)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            nib.save(nib.Nifti1Image(volume, affine), root / folder / f"{name}.nii.gz")
    (root / "split.csv").write_text("name,split\ncase1,train\ncase2,test\n")
    (root / "dataset.yaml").write_text("classes: [background, heart]\n")
    out = corrupt(root, noise="dilate_erode", parameters={"dilate_share": 1}, out=tmp_path / "out", progress=False)
    noisy, clean = (nib.load(out / folder / "case1.nii.gz") for folder in ("masks", "clean"))
    assert np.array_equal(noisy.affine, affine) and np.array_equal(clean.affine, affine)
    assert np.array_equal(clean.get_fdata(), nib.load(root / "masks" / "case1.nii.gz").get_fdata())
    area = noisy.get_fdata().sum((0, 1)) / 120
    assert area[0] == 0 and (area[1:] > 1.3).all()
    assert np.array_equal(nib.load(out / "masks" / "case2.nii.gz").get_fdata(), mask)
    assert len(open_dataset(out).split("train")) == 4


def test_output_folder_that_holds_something_is_left_alone(source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="out: exists and is not an empty folder"):
        corrupt(source, noise="ellipse", out=tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_failure_half_way_leaves_nothing_behind(small, tmp_path):
    Image.fromarray(np.full((30, 30), 7, np.uint8)).save(small / "masks" / "c.png")
    with pytest.raises(ValueError, match=r"c\.png: label 7"):
        corrupt(small, noise="symmetric", out=tmp_path / "out", workers=2, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": "symmetry"}, "'symmetry', did you mean 'symmetric'"),
        ({"noise": Symmetric(num_classes=3)}, "3 classes"),
        ({"noise": Symmetric(num_classes=4), "parameters": {"rate": 0.1}}, "'rate': 0.1"),
        ({"share": 1.5}, "share .*1.5"),
        ({"workers": 0}, "workers .*0"),
        ({"splits": ("train", "dev")}, "'dev'"),
        ({"splits": "train"}, "'train'"),
    ],
)
def test_bad_arguments_are_named(source, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        corrupt(source, out=tmp_path / "out", **({"noise": "symmetric"} | arguments))
    assert not list(tmp_path.iterdir())


def test_missing_dataset_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        corrupt(tmp_path / "nowhere", noise="symmetric", out=tmp_path / "out")
