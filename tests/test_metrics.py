"""Scores against numbers worked out by hand and against loops that share no code with the package."""

import json
import math

import numpy as np
import pytest
import torch

from jcas.metrics import SegmentationScores
from jcas.schema import LabelSpace

LABELS = LabelSpace(("background", "shaft", "wrist", "clasper"))


def random_masks(seed: int, count: int = 6) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Masks where classes are missing in some images and some pixels are ignored."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, (count, 9, 7))
    predicted = np.where(rng.random(truth.shape) < 0.6, truth, rng.integers(0, 4, truth.shape))
    truth[0][truth[0] == 2] = 0
    predicted[1][predicted[1] == 3] = 1
    truth[rng.random(truth.shape) < 0.15] = 255
    return torch.from_numpy(predicted), torch.from_numpy(truth), [f"image{i}" for i in range(count)]


def looped_overlap(predicted: np.ndarray, truth: np.ndarray, index: int) -> tuple[int, int, int]:
    """(hits, predicted area, true area) of one class, pixel by pixel."""
    hits = area_predicted = area_true = 0
    for p, t in zip(predicted.ravel().tolist(), truth.ravel().tolist(), strict=True):
        if t == 255:
            continue
        hits += p == index and t == index
        area_predicted += p == index
        area_true += t == index
    return hits, area_predicted, area_true


def test_scores_match_numbers_worked_out_by_hand():
    truth = torch.tensor([[[1, 1, 0, 0], [2, 2, 2, 0]], [[1, 1, 1, 1], [0, 0, 0, 0]]])
    predicted = torch.tensor([[[1, 0, 0, 1], [2, 2, 0, 0]], [[1, 1, 1, 0], [2, 2, 0, 0]]])
    scores = SegmentationScores(LABELS)
    scores.update(predicted, truth, ["a", "b"])
    table = scores.compute()
    # shaft: image a 1 hit, 2 + 2 pixels -> Dice 1/2, Jac 1/3; image b 3 hits, 3 + 4 -> Dice 6/7, Jac 3/4
    assert table["dice"]["shaft"] == pytest.approx(100 * (1 / 2 + 6 / 7) / 2, abs=1e-12)
    assert table["jac"]["shaft"] == pytest.approx(100 * (1 / 3 + 3 / 4) / 2, abs=1e-12)
    # wrist: true only in image a, 2 hits, 2 + 3 pixels -> Dice 4/5, Jac 2/3; invented in b without cost here
    assert table["dice"]["wrist"] == pytest.approx(80.0)
    assert table["jac"]["wrist"] == pytest.approx(200 / 3)
    assert table["jac"]["mean"] == pytest.approx((100 * (1 / 3 + 3 / 4) / 2 + 200 / 3) / 2)
    # dataset rule: shaft 4 hits of 5 + 6 pixels, wrist 2 hits of 4 + 3 pixels
    assert table["dataset_dice"]["shaft"] == pytest.approx(800 / 11)
    assert table["dataset_jac"]["shaft"] == pytest.approx(400 / 7)
    assert table["dataset_jac"]["wrist"] == pytest.approx(200 / 5)
    assert table["dataset_jac"]["mean"] == pytest.approx((400 / 7 + 40) / 2)


def test_class_absent_everywhere_is_none_and_outside_the_mean():
    scores = SegmentationScores(LABELS)
    scores.update(torch.tensor([[1, 0]]), torch.tensor([[1, 0]]), "a")
    table = scores.compute()
    for rule in ("dice", "jac", "dataset_dice", "dataset_jac"):
        assert table[rule] == {"shaft": 100.0, "wrist": None, "clasper": None, "mean": 100.0}
    assert "null" in json.dumps(table)


def test_class_predicted_but_never_true_is_unscored_by_image_and_zero_over_the_dataset():
    scores = SegmentationScores(LABELS)
    scores.update(torch.tensor([[1, 2]]), torch.tensor([[1, 0]]), "a")
    table = scores.compute()
    assert table["jac"]["wrist"] is None and table["jac"]["mean"] == 100.0
    assert table["dataset_jac"]["wrist"] == 0.0 and table["dataset_jac"]["mean"] == 50.0


def test_ignored_pixels_leave_the_predicted_area_too():
    scores = SegmentationScores(LABELS)
    scores.update(torch.tensor([[1, 1, 1, 1]]), torch.tensor([[1, 1, 255, 255]]), "a")
    assert scores.compute()["dataset_jac"]["shaft"] == 100.0
    assert scores.compute()["jac"]["shaft"] == 100.0


def test_image_of_ignored_pixels_only_has_no_score():
    scores = SegmentationScores(LABELS, surface=True)
    scores.update(np.ones((2, 2), np.uint8), np.full((2, 2), 255, np.uint8), "a")
    assert scores.per_image()[0]["jac"] == {"shaft": None, "wrist": None, "clasper": None, "mean": None}
    assert scores.compute()["hd95"]["mean"] is None


@pytest.mark.parametrize("seed", range(3))
def test_scores_match_pixel_loops(seed: int):
    predicted, truth, ids = random_masks(seed)
    scores = SegmentationScores(LABELS)
    scores.update(predicted, truth, ids)
    table, class_means = scores.compute(), []
    for index, name in enumerate(LABELS.foreground, start=1):
        counts = [looped_overlap(p, t, index) for p, t in zip(predicted.numpy(), truth.numpy(), strict=True)]
        jac = [100 * hit / (p + t - hit) for hit, p, t in counts if t]
        dice = [200 * hit / (p + t) for hit, p, t in counts if t]
        hit, p, t = (sum(column) for column in zip(*counts, strict=True))
        assert table["jac"][name] == pytest.approx(sum(jac) / len(jac), rel=1e-13)
        assert table["dice"][name] == pytest.approx(sum(dice) / len(dice), rel=1e-13)
        assert table["dataset_jac"][name] == 100 * hit / (p + t - hit)
        assert table["dataset_dice"][name] == 200 * hit / (p + t)
        class_means.append(sum(jac) / len(jac))
    assert table["jac"]["mean"] == pytest.approx(sum(class_means) / 3, rel=1e-13)


def test_order_and_repetition_of_images_do_not_change_a_digit():
    predicted, truth, ids = random_masks(seed=7, count=11)
    together, apart = SegmentationScores(LABELS, surface=True), SegmentationScores(LABELS, surface=True)
    together.update(predicted, truth, ids)
    apart.update(predicted[1::2], truth[1::2], ids[1::2])
    apart.update(predicted[::2], truth[::2], ids[::2])
    apart.update(predicted[1], truth[1], ids[1])  # what a padding distributed sampler does
    assert apart.compute() == together.compute()
    assert len(apart.per_image()) == 11


def test_per_image_rows_carry_id_and_tables():
    scores = SegmentationScores(LABELS)
    two_thirds = pytest.approx(200 / 3)
    scores.update(torch.tensor([[[1, 2]], [[0, 2]]]), torch.tensor([[[1, 1]], [[2, 2]]]), ("a", "b"))
    assert scores.per_image() == [
        {
            "id": "a",
            "jac": {"shaft": 50.0, "wrist": None, "clasper": None, "mean": 50.0},
            "dice": {"shaft": two_thirds, "wrist": None, "clasper": None, "mean": two_thirds},
        },
        {
            "id": "b",
            "jac": {"shaft": None, "wrist": 50.0, "clasper": None, "mean": 50.0},
            "dice": {"shaft": None, "wrist": two_thirds, "clasper": None, "mean": two_thirds},
        },
    ]


def square(top: int, left: int, label: int = 1) -> torch.Tensor:
    mask = torch.zeros(24, 24, dtype=torch.long)
    mask[top : top + 8, left : left + 8] = label
    return mask


def test_surface_scores_of_a_shifted_square_match_a_loop_over_its_edges():
    truth, predicted, spacing = square(6, 6), square(6, 9), (1.0, 0.5)

    def edge(mask: torch.Tensor) -> list[tuple[int, int]]:
        inside = {(r, c) for r, c in mask.nonzero().tolist()}
        steps = ((0, 1), (1, 0), (0, -1), (-1, 0))
        return [(r, c) for r, c in inside if any((r + i, c + j) not in inside for i, j in steps)]

    def distances(from_: list[tuple[int, int]], to: list[tuple[int, int]]) -> list[float]:
        return [min(math.hypot(r - i, (c - j) * spacing[1]) for i, j in to) for r, c in from_]

    forth, back = distances(edge(predicted), edge(truth)), distances(edge(truth), edge(predicted))
    scores = SegmentationScores(LABELS, surface=True, spacing=spacing, tolerance=0.5)
    scores.update(predicted, truth, "a")
    table = scores.compute()
    assert table["hd95"]["shaft"] == pytest.approx(max(np.percentile(forth, 95), np.percentile(back, 95)))
    assert table["assd"]["shaft"] == pytest.approx(np.mean(forth + back))
    assert table["nsd"]["shaft"] == pytest.approx(100 * np.mean(np.array(forth + back) <= 0.5))
    assert table["missed"] == {"shaft": 0.0, "wrist": None, "clasper": None, "mean": 0.0}


def test_each_image_may_have_its_own_spacing():
    scores = SegmentationScores(LABELS, surface=True)
    scores.update(square(6, 9), square(6, 6), "pixels")
    scores.update(square(6, 9), square(6, 6), "half", spacing=(1.0, 0.5))
    pixels, half = (row["hd95"]["shaft"] for row in scores.per_image())
    assert (pixels, half) == (3.0, 1.5)


def test_missed_class_has_no_distance_but_zero_surface_overlap():
    scores = SegmentationScores(LABELS, surface=True)
    scores.update(square(6, 6), square(6, 6), "found")
    scores.update(torch.zeros(24, 24, dtype=torch.long), square(6, 6), "missed")
    table = scores.compute()
    assert table["hd95"]["shaft"] == 0.0 and table["assd"]["shaft"] == 0.0
    assert table["nsd"]["shaft"] == 50.0 and table["missed"]["shaft"] == 50.0
    assert scores.per_image()[1]["hd95"]["shaft"] is None


def test_ignored_pixels_are_cut_out_of_surfaces():
    truth, predicted = square(6, 6), square(6, 6)
    predicted[0:3, 0:3] = 1  # a far wrong blob, but nobody judged that corner
    truth[0:4, 0:4] = 255
    scores = SegmentationScores(LABELS, surface=True)
    scores.update(predicted, truth, "a")
    assert scores.compute()["hd95"]["shaft"] == 0.0


def test_one_string_id_means_one_image_of_any_rank():
    volume = torch.zeros(3, 4, 5, dtype=torch.long)
    volume[1, 1:3, 1:3] = 1
    scores = SegmentationScores(LABELS, surface=True)
    scores.update(volume, volume, "scan")
    assert len(scores.per_image()) == 1
    assert scores.compute()["nsd"]["shaft"] == 100.0


def test_no_images_gives_no_scores():
    assert SegmentationScores(LABELS).compute()["jac"]["mean"] is None


@pytest.mark.parametrize(
    ("predicted", "truth", "ids", "message"),
    [
        ([[0, 4]], [[0, 1]], "a", "predicted label 4 in image 'a'"),
        ([[0, 255]], [[0, 1]], "a", "predicted label 255 in image 'a'"),
        ([[0, 1]], [[-1, 1]], "a", "truth label -1 in image 'a'"),
        ([[0, 1]], [[0], [1]], "a", "predicted is"),
        ([[[0, 1]]], [[[0, 1]]], ["a", "b"], "1 images but 2 ids"),
    ],
)
def test_bad_input_is_named(predicted: list, truth: list, ids: str | list[str], message: str):
    with pytest.raises(ValueError, match=message):
        SegmentationScores(LABELS).update(torch.tensor(predicted), torch.tensor(truth), ids)


def test_different_images_under_one_id_are_refused():
    scores = SegmentationScores(LABELS)
    scores.update(torch.tensor([[1]]), torch.tensor([[1]]), "a")
    with pytest.raises(ValueError, match="share the id 'a'"):
        scores.update(torch.tensor([[0]]), torch.tensor([[1]]), "a")


def test_class_called_mean_is_refused():
    with pytest.raises(ValueError, match="'mean'"):
        SegmentationScores(LabelSpace(("background", "mean")))
