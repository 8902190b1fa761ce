r"""How likely is each class at each pixel, given the image, the label that stands there, and the labels around it.

.. math:: P(c \mid x, \tilde y) \propto P(c \mid x)\; T(c, \tilde y)\; s^{2 [c \ne \tilde y]}\; (a_c + a_0)

T is the noise of the labels where there is anything to decide (`Conflicts`) or, on request, the matrix that the run has
learned, s how much more this image disagrees with its mask than the model's own doubt explains,
and :math:`a_c` the share of class c among the labels of the surroundings (a neighbour is a pixel of like features
that needs no features). Which factor is worth what on real data, ``benchmarks/audit.py`` prints: s gains nearly
everywhere, the surroundings gain on flipped labels and readers and lose a little on ellipses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import find_objects, gaussian_filter

from jcas.core import from_counts, symmetric
from jcas.schema import IGNORE

Probabilities = NDArray[np.float32]  # (C, H, W)
Labels = NDArray[np.uint8]  # (H, W), 255 = ignore
Map = NDArray[np.float32]  # (H, W)
Matrix = NDArray[np.float64]  # (C, C)

NEIGHBOURHOOD = 1.5
"""Standard deviation of the surroundings, pixels."""

_TRUNCATE = 2  # standard deviations beyond which a neighbour has no voice

NEIGHBOUR_FLOOR = 0.3
"""a_0: surroundings that all carry one label do not forbid another; a wrong area agrees with itself."""

SURPRISE_POWER = 2
"""s enters squared: a model trained on the labels has moved towards them, so s comes out too close to 1."""

SURPRISE_PRIOR = 300.0
"""Pixels of disagreement just as expected that every image starts with: a small image proves little."""

SMALLEST_RATE = 1e-3
"""No label is certain: a noise rate that comes out smaller is set to this."""

CONFIDENT = 0.8
"""Predictions at least this sure are counted against the labels where a run has no matrix of its own."""

DOUBT, LARGEST_RATE = 0.99, 0.5
"""Pixels less sure than the first are contested; the rate among them counts up to the second."""

EXCESS_WEIGHT, RELATIVE_WEIGHT = 50.0, 0.5
"""Quality is 1/2 where 1/50 of an image is wrong beyond the model's own doubt; small structures, which never fill 1/50,
also lose by the share of the marked and missing structure that is wrong."""


@dataclass(frozen=True)
class Judgement:
    """What is believed of one image's mask; ignored pixels take no part."""

    posterior: Probabilities  # (C, H, W), sums to 1
    wrongness: Map  # 1 - posterior of the given label, 0 where ignored
    joint: Matrix  # joint[c, n] = expected pixels of clean class c that carry label n
    excess: float  # expected disagreement that the model's own doubt does not explain, as a share of the pixels

    @property
    def expected_wrong(self) -> float:
        """Expected number of wrong pixels."""
        return float(self.joint.sum() - np.trace(self.joint))

    @property
    def quality(self) -> float:
        """1 = nothing is wrong; falls with the excess over the whole image and with the error beside the structures."""
        right = float(np.diag(self.joint)[1:].sum())  # of the foreground
        relative = self.expected_wrong / (right + self.expected_wrong + 1)
        return 1 / (1 + EXCESS_WEIGHT * max(self.excess, 0.0) + RELATIVE_WEIGHT * relative)

    def repaired(self, given: Labels, *, confidence: float) -> tuple[Labels, Map]:
        """The mask with labels replaced where another has at least this probability, and the best probability."""
        best, certainty = likeliest(self.posterior)
        change = (certainty >= confidence) & (best != given) & (given != IGNORE)
        return np.where(change, best, given), certainty


def judge(
    probs: Probabilities, given: Labels, transition: Matrix, *, neighbours: bool = True, surprise: bool = True
) -> Judgement:
    """Weigh a prediction against a mask.

    Args:
        probs: clean-class probabilities of the image.
        given: the mask.
        transition: p(given label n | clean class m).
        neighbours: use the labels around a pixel.
        surprise: use how much the whole image disagrees.
    """
    classes = len(probs)
    known = given != IGNORE
    index = np.where(known, given, 0)
    observed, expected = disagreement(probs, index, known)
    likelihood = transition.astype(np.float32)
    if surprise:
        scale = ((observed + SURPRISE_PRIOR) / (expected + SURPRISE_PRIOR)) ** SURPRISE_POWER
        likelihood = np.where(np.eye(classes, dtype=bool), likelihood, likelihood * np.float32(scale))
    posterior = np.take(likelihood, index, axis=1)
    posterior *= probs
    if neighbours:
        around = surroundings(given, classes)
        around += np.float32(NEIGHBOUR_FLOOR)
        posterior *= around
    posterior /= np.maximum(posterior.sum(0), np.finfo(np.float32).tiny)
    wrongness = 1 - _at(posterior, index)
    wrongness[~known] = 0
    joint = _sums_by_label(posterior, given)
    return Judgement(posterior, wrongness.clip(0, 1), joint, (observed - expected) / max(int(known.sum()), 1))


def likeliest(maps: Probabilities) -> tuple[Labels, Map]:
    """The best class of each pixel, the first of equals, and its probability; faster than two passes over axis 0."""
    best, value = np.zeros(maps.shape[1:], dtype=np.uint8), maps[0].copy()
    for label, each in enumerate(maps[1:], start=1):
        best[each > value] = label
        np.maximum(value, each, out=value)
    return best, value


def _sums_by_label(maps: Probabilities, given: Labels) -> Matrix:
    """Sum of each map over the pixels of each label; ignored pixels are in none."""
    classes = len(maps)
    chosen = np.stack([given == label for label in range(classes)]).astype(np.float32)
    rows = np.matmul(maps.transpose(1, 0, 2), chosen.transpose(1, 2, 0))  # (H, C, C): short sums lose no digits
    return rows.sum(0, dtype=np.float64)


def disagreement(probs: Probabilities, index: Labels, known: NDArray[np.bool_]) -> tuple[float, float]:
    """Expected disagreeing pixels if the model is right, and if the labels were drawn from what it says."""
    observed = (1 - _at(probs, index)).sum(where=known, dtype=np.float64)
    expected = (1 - np.einsum("chw,chw->hw", probs, probs)).sum(where=known, dtype=np.float64)
    return float(observed), float(expected)


def surroundings(given: Labels, classes: int) -> Probabilities:
    """Share of each class among the labels around each pixel; ignored pixels have no voice."""
    shares = np.zeros((classes, *given.shape), dtype=np.float32)
    reach = int(_TRUNCATE * NEIGHBOURHOOD + 0.5)
    ignored = bool((given == IGNORE).any())
    for label, box in enumerate(find_objects(given, max_label=classes - 1), start=1):
        if box is not None:  # outside of this box the share is nought
            wider = tuple(slice(max(side.start - reach, 0), side.stop + reach) for side in box)
            shares[label][wider] = _blurred(given[wider] == label)
    if ignored:
        shares[0] = _blurred(given == 0)
        shares /= np.maximum(shares.sum(0), np.finfo(np.float32).tiny)
    else:
        np.subtract(1, shares[1:].sum(0), out=shares[0])
        np.maximum(shares[0], 0, out=shares[0])
    return shares


def _blurred(where: NDArray[np.bool_]) -> Map:
    return gaussian_filter(where.astype(np.float32), NEIGHBOURHOOD, truncate=_TRUNCATE)


def count_confident(probs: Probabilities, given: Labels) -> NDArray[np.int64]:  # (C, C)
    """Confident predictions (rows) against the labels (columns) of one image."""
    classes = len(probs)
    best, value = likeliest(probs)
    sure = (value >= CONFIDENT) & (given != IGNORE)
    pairs = best[sure].astype(np.intp) * classes + given[sure]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def transition_from(counts: Matrix | NDArray[np.int64]) -> Matrix:
    """Rows as distributions; a class that was never seen keeps its label.

    >>> transition_from(np.array([[8, 2], [0, 0]])).tolist()
    [[0.8, 0.2], [0.0, 1.0]]
    """
    return from_counts(torch.from_numpy(np.asarray(counts, dtype=np.float64))).numpy()


@dataclass(frozen=True)
class Conflicts:
    """Pixels where prediction and label differ, among those where there is anything to decide; sums over images."""

    conflicts: int = 0
    contested: int = 0

    def plus(self, probs: Probabilities, given: Labels) -> Conflicts:
        """With the pixels of one more image: contested where the model doubts or contradicts."""
        known = given != IGNORE
        best, value = likeliest(probs)
        conflict = (best != given) & known
        doubted = (value < DOUBT) & known
        return Conflicts(self.conflicts + int(conflict.sum()), self.contested + int((conflict | doubted).sum()))

    def transition(self, classes: int) -> Matrix:
        """The rate of conflicts, every wrong class equally likely.

        Real errors sit at outlines. There each class is mistaken for its neighbour about as often as the other way
        round, however rare that is over all pixels of a large class. A matrix over all pixels says that almost no
        background carries a small structure's label, so that a structure painted too large looks right.

        >>> Conflicts(conflicts=1, contested=4).transition(2).tolist()
        [[0.75, 0.25], [0.25, 0.75]]
        """
        rate = self.conflicts / max(self.contested, 1)
        lowest = SMALLEST_RATE * (classes - 1)
        return symmetric(classes, min(max(rate, lowest), LARGEST_RATE)).numpy()


def _at(maps: Probabilities, index: Labels) -> Map:
    """The map of each pixel's own label."""
    found = np.zeros(index.shape, dtype=np.float32)
    for label, each in enumerate(maps):
        np.copyto(found, each, where=index == label)
    return found
