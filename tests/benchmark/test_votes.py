"""Votes of pixels rank predictions by their true overlap, though no true label is seen."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_dilation, binary_erosion

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from votes import against_votes, lead, middles

IMAGES, SIDE = 6, 64


@pytest.fixture(scope="module")
def discs():
    """Images of one bright disc, the disc, and labels that are three pixels too wide."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    found = []
    for _ in range(IMAGES):
        row, column, radius = rng.integers(24, 40), rng.integers(24, 40), rng.integers(9, 13)
        disc = (rows - row) ** 2 + (columns - column) ** 2 <= radius**2
        image = torch.from_numpy(disc + rng.normal(0, 0.4, disc.shape))[None].float()
        found.append((image, disc, torch.from_numpy(binary_dilation(disc, iterations=3)).long()))
    return found


def judged(discs, believe):
    return against_votes([(image, wide, torch.from_numpy(believe(disc)).long()) for image, disc, wide in discs], 2)


def overlap(discs, believe):
    both = sum((believe(disc) & disc).sum() for _, disc, _ in discs)
    return 100 * both / sum((believe(disc) | disc).sum() for _, disc, _ in discs)


@pytest.mark.parametrize("steps", [-2, -1, 0, 1, 2, 3])
def test_estimate_is_near_the_true_overlap(discs, steps):
    def believe(disc):
        if not steps:
            return disc
        return (binary_dilation if steps > 0 else binary_erosion)(disc, iterations=abs(steps))

    assert judged(discs, believe).jaccard() == pytest.approx(overlap(discs, believe), abs=6)


def test_true_outlines_lead_the_labels_own(discs):
    true = judged(discs, lambda disc: disc)
    wide = judged(discs, lambda disc: binary_dilation(disc, iterations=3))
    ahead, error = lead(true, wide)
    assert ahead > 20 and 0 < error < 5
    assert lead(wide, true)[0] == -ahead and lead(true, true) == (0, 0)


def test_pixels_far_from_all_objects_count_as_background(discs):
    def believe(disc):
        strayed = disc.copy()
        strayed[:6, :6] = True
        return strayed

    plain, strayed = judged(discs, lambda disc: disc), judged(discs, believe)
    assert strayed.stray[:, 1].sum() == 36 * IMAGES and not plain.stray.any()
    assert strayed.jaccard() < plain.jaccard() - 3


def test_middles_of_pieces_and_of_the_background():
    labels = np.zeros((64, 64), np.int64)
    labels[10:21, 10:21] = 1
    labels[40:45, 40:45] = 1
    found, near = middles(labels, 2)
    assert found[1, 15, 15] and found[1, 42, 42] and not found[1, 10].any()
    assert not (found[0] & found[1]).any() and not found[0][labels > 0].any()
    assert near[labels > 0].all() and near[found[0]].all() and not near[0, 63]
