"""Synthetic endoscopy: deterministic, exact labels, EndoVis-like proportions, a real shift between the domains."""

import csv

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from jcas.data.layout import open_dataset
from jcas.data.synthetic import CLASPER, LABELS, SHAFT, WRIST, synthesise, write_dataset

SIZE = (96, 120)


@pytest.fixture(scope="module")
def scenes() -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    return {domain: [synthesise(i, size=SIZE, domain=domain) for i in range(32)] for domain in ("source", "target")}


def test_scene_is_deterministic_in_any_order():
    first = [synthesise(i, size=SIZE, seed=3) for i in (0, 1)]
    again = [synthesise(i, size=SIZE, seed=3) for i in (1, 0)][::-1]
    for (image, mask), (image_again, mask_again) in zip(first, again, strict=True):
        assert np.array_equal(image, image_again) and np.array_equal(mask, mask_again)


def test_scene_depends_on_seed_index_and_domain():
    base = synthesise(0, size=SIZE)[0]
    others = [
        synthesise(1, size=SIZE)[0],
        synthesise(0, size=SIZE, seed=1)[0],
        synthesise(0, size=SIZE, domain="target")[0],
    ]
    assert all(not np.array_equal(base, other) for other in others)


def test_scene_has_shapes_types_and_all_parts():
    image, mask = synthesise(5, size=(64, 90))
    assert image.shape == (64, 90, 3) and image.dtype == np.uint8
    assert mask.shape == (64, 90) and mask.dtype == np.uint8
    assert set(np.unique(mask)) == {0, SHAFT, WRIST, CLASPER}


def test_scene_is_the_same_at_another_size():
    small, large = synthesise(2, size=(96, 120))[1], synthesise(2, size=(192, 240))[1]
    agreement = (small == large[1::2, 1::2]).mean()
    assert agreement > 0.98  # outlines differ by a pixel, scenes do not


@pytest.mark.parametrize("domain", ["source", "target"])
def test_class_fractions_resemble_endovis18(scenes, domain):
    # EndoVis18 parts: 0.84 background, 0.089 shaft, 0.020 wrist, 0.051 clasper (class frequencies of the released code)
    counts = sum(np.bincount(mask.ravel(), minlength=4) for _, mask in scenes[domain])
    fractions = counts / counts.sum()
    assert 0.80 < fractions[0] < 0.90
    assert 0.06 < fractions[SHAFT] < 0.12
    assert 0.015 < fractions[WRIST] < 0.035
    assert 0.025 < fractions[CLASPER] < 0.06


def test_shafts_enter_from_the_border(scenes):
    for _, mask in scenes["source"]:
        pieces, count = ndimage.label(mask > 0)
        framed = np.ones(mask.shape, bool)
        framed[1:-1, 1:-1] = False
        assert set(range(1, count + 1)) <= set(np.unique(pieces[framed])), "an instrument floats in mid-air"


def test_mask_lies_on_the_image_edges(scenes):
    """The picture changes across the mask's outline more than elsewhere, in the place where the mask says so."""

    def edge_strength(image: np.ndarray, mask: np.ndarray) -> float:
        grey = ndimage.gaussian_gradient_magnitude(image.mean(-1), 1.0)
        outline = (mask > 0) ^ ndimage.binary_erosion(mask > 0, border_value=1)
        return float(grey[outline].mean() / grey.mean())

    here = np.mean([edge_strength(image, mask) for image, mask in scenes["source"]])
    shifted = np.mean([edge_strength(image, np.roll(mask, (4, 4), (0, 1))) for image, mask in scenes["source"]])
    assert here > 1.5 and here > 1.25 * shifted


def test_domains_differ_in_tissue_and_instrument_colour(scenes):
    def mean_colour(domain: str, label: int) -> np.ndarray:
        return np.mean(
            [image[mask == label].mean(0) for image, mask in scenes[domain] if (mask == label).any()], axis=0
        )

    tissue = np.abs(mean_colour("source", 0) - mean_colour("target", 0)).max()
    shaft = np.abs(mean_colour("source", SHAFT) - mean_colour("target", SHAFT)).max()
    assert tissue > 20 and shaft > 15


@pytest.mark.parametrize("domain", ["source", "target"])
def test_colour_alone_does_not_give_the_parts(scenes, domain):
    """The best table from colour (12 levels per channel) to class, even fitted on the scenes it is judged on."""
    images = np.stack([image for image, _ in scenes[domain]]).astype(int) // 22
    masks = np.stack([mask for _, mask in scenes[domain]])
    bins = (images[..., 0] * 12 + images[..., 1]) * 12 + images[..., 2]
    table = np.zeros((12**3, 4))
    np.add.at(table, (bins.ravel(), masks.ravel()), 1)
    guess = table.argmax(1)[bins]
    dice = [2 * ((guess == c) & (masks == c)).sum() / ((guess == c).sum() + (masks == c).sum()) for c in range(4)]
    assert dice[SHAFT] < 0.9 and dice[WRIST] < 0.4 and dice[CLASPER] < 0.7


def test_written_dataset_opens_with_its_splits_and_classes(tmp_path):
    out = write_dataset(tmp_path / "set", count=10, size=(48, 60), seed=1, val_fraction=0.2, test_fraction=0.3)
    dataset = open_dataset(out)
    assert dataset.labels == LABELS and dataset.name == "synthetic-source"
    assert [len(dataset.split(name)) for name in ("train", "val", "test")] == [5, 2, 3]
    image, mask = synthesise(4, size=(48, 60), seed=1)
    assert np.array_equal(np.asarray(Image.open(out / "images" / "source_0004.png")), image)
    assert np.array_equal(np.asarray(Image.open(out / "masks" / "source_0004.png")), mask)
    with open(out / "split.csv") as file:
        assert [row["name"] for row in csv.DictReader(file)][4] == "source_0004"


def test_written_dataset_leaves_an_existing_folder_alone(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.txt").write_text("keep")
    with pytest.raises(ValueError, match="set: exists and is not an empty folder"):
        write_dataset(tmp_path / "set", count=2)
    assert [path.name for path in tmp_path.rglob("*")] == ["set", "mine.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"domain": "moon"}, "'moon'"),
        ({"size": (8, 64)}, r"\(8, 64\)"),
        ({"seed": -1}, "seed=-1"),
        ({"index": -2}, "index=-2"),
    ],
)
def test_scene_rejects_bad_arguments_by_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        synthesise(**({"index": 0} | arguments))


def test_written_dataset_rejects_bad_counts_and_fractions(tmp_path):
    with pytest.raises(ValueError, match="got 0"):
        write_dataset(tmp_path / "set", count=0)
    with pytest.raises(ValueError, match=r"0\.6 and 0\.5"):
        write_dataset(tmp_path / "set", count=4, val_fraction=0.6, test_fraction=0.5)
    assert not list(tmp_path.iterdir())
