"""Shapes of labels: which of them are ellipses."""

import numpy as np
import pytest
import torch

from jcas.methods.noise_counts import NoiseCounts
from jcas.methods.shapes import count_ellipses, overlap_with_ellipse
from jcas.noise import Ellipse

ROWS, COLUMNS = np.mgrid[:60, :60]


def ellipse(across: float, down: float, *, turn: float = 0.0, centre: tuple[float, float] = (29.5, 30.2)) -> np.ndarray:
    y, x = ROWS - centre[0], COLUMNS - centre[1]
    u, v = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    return (u / across) ** 2 + (v / down) ** 2 <= 1


@pytest.mark.parametrize("turn", [0.0, 0.4, 1.2])
@pytest.mark.parametrize(("across", "down"), [(7, 5), (20, 6), (15, 15)])
def test_an_ellipse_is_one_however_it_lies(across, down, turn):
    assert overlap_with_ellipse(ellipse(across, down, turn=turn)) > 0.975


def test_the_overlap_is_that_with_the_nearest_pixels():
    """Pixel by pixel: as many as the region has, nearest by the distance of its own covariance."""
    region = np.zeros((60, 60), bool)
    region[20:40, 25:31] = region[20:26, 25:45] = True
    points = [(y, x) for y in range(60) for x in range(60) if region[y, x]]
    my, mx = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    syy = sum((y - my) ** 2 for y, _ in points) / len(points) + 1 / 12
    sxx = sum((x - mx) ** 2 for _, x in points) / len(points) + 1 / 12
    sxy = sum((y - my) * (x - mx) for y, x in points) / len(points)
    determinant = syy * sxx - sxy**2

    def distance(y, x):
        return (sxx * (y - my) ** 2 - 2 * sxy * (y - my) * (x - mx) + syy * (x - mx) ** 2) / determinant

    nearest = sorted(((y, x) for y in range(60) for x in range(60)), key=lambda point: distance(*point))
    both = len(set(nearest[: len(points)]) & set(points))
    assert overlap_with_ellipse(region) == pytest.approx(both / (2 * len(points) - both))
    assert overlap_with_ellipse(region[20:40, 25:45]) == overlap_with_ellipse(region)  # whatever lies around it


def test_pieces_count_if_they_are_whole_and_large_enough():
    labels = np.zeros((60, 60), int)
    labels[ellipse(14, 10)] = 1
    labels[ellipse(6, 5)] = 2  # within a ring
    labels[ellipse(2, 2, centre=(50, 50))] = 1  # small
    labels[ellipse(9, 9, centre=(2, 30))] = 2  # cut by the border
    labels[50:58, 4:20] = 1  # a box
    assert count_ellipses(torch.tensor(labels)[None]) == (3, 2)
    labels[57, 10] = 255  # within the box
    assert count_ellipses(torch.tensor(labels)[None]) == (2, 2)
    assert count_ellipses(torch.tensor(labels)[None].repeat_interleave(3, 1).repeat_interleave(3, 2)) == (2, 2)


def test_a_few_shapes_prove_nothing():
    labels = torch.tensor(ellipse(14, 10)).long()[None]
    counts = NoiseCounts(2, tied=True)
    for _ in range(9):
        counts.add_kind(labels)
    assert not counts.of_ellipses
    counts.add_kind(labels)
    assert counts.of_ellipses


def test_large_shapes_are_thinned():
    rows, columns = np.mgrid[:700, :700]
    large = (rows - 350) ** 2 + 2 * (columns - 340) ** 2 < 90_000
    assert overlap_with_ellipse(large) > 0.99 > 0.9 > overlap_with_ellipse(np.ones((500, 500), bool))


def test_a_line_between_the_pixels_that_are_kept_is_no_ellipse():
    rows, columns = np.mgrid[:200, :200]
    assert overlap_with_ellipse(rows + columns == 199) == 0


def test_labels_drawn_as_ellipses_are_told_from_outlines_and_flips():
    """Waves of a fifth of the radius around a circle, as they are, as ellipses, and flipped."""
    rng, noise = np.random.default_rng(0), Ellipse(num_classes=2)
    found = {}
    for kind in ("true", "ellipse", "flipped"):
        counts = NoiseCounts(2, tied=True)
        for _ in range(12):
            y, x = ROWS - 30, COLUMNS - 30
            waves = 1 + 0.2 * np.cos(3 * np.arctan2(y, x) + rng.uniform(0, 6))
            mask = (np.hypot(y, x) < rng.uniform(10, 20) * waves).astype(np.uint8)
            if kind == "ellipse":
                mask = noise.apply(mask, rng, None)
            if kind == "flipped":
                mask = np.where(rng.random(mask.shape) < 0.3, 1 - mask, mask)
            counts.add_kind(torch.tensor(mask.astype(np.int64))[None])
        found[kind] = (counts.of_drawn_labels, counts.of_ellipses)
    assert found == {"true": (True, False), "ellipse": (True, True), "flipped": (False, False)}
