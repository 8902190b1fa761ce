r"""Are outlines drawn too wide, all over a dataset? Counted, class by class, with the image as a weak judge.

A model of labels that are drawn too wide gives pixels outside of an object to it with a probability above one half. An
image cannot say which pixels; but how *many* of the pixels that the model calls doubtful look like the one class and
how many like the other can be counted over all images, and corrected for how often looks deceive.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from jcas.core.appearance import REACH, local_appearance
from jcas.core.checks import IGNORE, as_labels

LEAST_SHIFT = 0.75
"""Pixels by which an outline must be wrong on average: one pixel on it is a mixture and looks like neither class.

On cardiac MRI right outlines seem to be wrong by 0.6 pixels at most, ellipses by 0.8 and more.
"""

QUIET_SHIFT = 0.5
"""Pixels by which outlines may seem to be wrong where nothing is wrong with them.

A young model of ellipses on cardiac MRI shows 0.56 to 0.7 before it shows more, one of readers of nodules at most 0.4.
"""

MOST_DECEIVED = 0.25
"""Share of the pixels that a class almost certainly has which may count as another's, or looks are not believed."""

LEAST_CONTRAST = 1 / 2
"""What looks must be worth: the difference between the shares of two cores that look like the first."""

WORTH = 0.4
"""Probability from which on a pixel is worth giving to a class rather than to the background.

Scores count overlap: another pixel raises the Dice score D of a class if it belongs to it with a probability above
D / 2 (Lipton et al. 2014), so for good but not perfect masks somewhat below one half.
"""

_LARGEST, _BINS = 5.0, 20
_SURE = 2  # bins, of a log-ratio from 4 to 5
_LEAST_SURE = 0.01
_LEAST_CORE = 6
_LEAST_LENGTH = 200


def near_outlines(labels: Tensor, num_classes: int) -> Tensor:  # (B, H, W) -> (B, H, W) of bool
    """Known pixels with another class not farther away than `REACH`."""
    known = as_labels(labels, labels.shape, num_classes=num_classes)
    radius = max(1, round(REACH * float(labels[0].numel()) ** 0.5))
    given = (known[:, None] == torch.arange(num_classes, device=known.device).view(1, -1, 1, 1)).float()
    reached = functional.max_pool2d(given, (2 * radius + 1, 1), stride=1, padding=(radius, 0))  # rows, then columns
    reached = functional.max_pool2d(reached, (1, 2 * radius + 1), stride=1, padding=(0, radius))
    return (reached.sum(1) > 1) & (known != IGNORE)


def class_cores(probs: Tensor, where: Tensor, least: Tensor) -> Tensor:  # (B, C, H, W) of bool
    """The pixels given to each class with at least its `core_confidence`."""
    sure, named = probs.max(1, keepdim=True)
    numbers = torch.arange(probs.shape[1], device=probs.device).view(1, -1, 1, 1)
    return (named == numbers) & where[:, None] & (sure >= least.view(1, -1, 1, 1))


@dataclass
class OutlineCounts:
    """What is counted for each ordered pair of classes (a, b); sums over images, and over processes, add up."""

    votes: Tensor  # (C, C, bins, 2) doubtful pixels by log-ratio: looking like b, like a
    cores: Tensor  # (C, C, 2, 2) pixels of the core of b, of a: looking like b, like a
    length: Tensor  # (C, C) neighbours of which one is given to a, the other to b

    @classmethod
    def none(cls, num_classes: int, device: torch.device) -> OutlineCounts:
        """Nothing counted yet."""
        pair = (num_classes, num_classes)
        shapes = ((*pair, _BINS + 2, 2), (*pair, 2, 2), pair)
        return cls(*(torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes))


def count_outlines(
    counts: OutlineCounts,
    image: Tensor,  # (B, channels, H, W)
    probs: Tensor,  # (B, C, H, W)
    where: Tensor,  # (B, H, W) of bool: `near_outlines`
    cores: Tensor,  # (B, C, H, W) of bool: `class_cores`
) -> None:
    r"""Add a batch to the counts.

    A pixel is doubtful between its two likeliest classes a and b. It looks like a if :math:`\ell_a > \ell_b`, with
    `local_appearance` :math:`\ell` of the cores of the same image; images without both cores are left out.
    """
    best = probs.topk(2, 1).indices
    named = best[:, 0]
    likely = local_appearance(image, cores.to(image))
    logarithm = probs.clamp_min(1e-6).log()
    seen = cores.flatten(2).sum(2) >= _LEAST_CORE  # (B, C)
    for a in range(probs.shape[1]):
        for b in range(a):
            both = (seen[:, a] & seen[:, b]).view(-1, 1, 1)
            if not bool(both.any()):
                continue
            like_a = (likely[:, a] > likely[:, b]).long()
            doubtful = ((best == a) | (best == b)).all(1) & where & both
            ratio = (logarithm[:, a] - logarithm[:, b])[doubtful]
            bins = ((ratio + _LARGEST) * (_BINS / (2 * _LARGEST))).floor().clamp(-1, _BINS).long() + 1
            counts.votes[a, b] += _counted(bins * 2 + like_a[doubtful], (_BINS + 2) * 2).view(-1, 2)
            for side, index in enumerate((b, a)):
                counts.cores[a, b, side] += _counted(like_a[cores[:, index] & both], 2)
            given = torch.where(((named == a) | (named == b)) & both, named, -1)
            counts.length[a, b] += _steps(given[:, 1:], given[:, :-1]) + _steps(given[:, :, 1:], given[:, :, :-1])


def _steps(first: Tensor, second: Tensor) -> Tensor:
    return ((first != second) & (first >= 0) & (second >= 0)).sum()


def _counted(indices: Tensor, size: int) -> Tensor:
    return torch.bincount(indices, minlength=size).double()


def touch(counts: OutlineCounts, a: int, b: int) -> bool:
    """Whether two classes have enough of an outline in common to be counted on."""
    return float(counts.length[a, b]) >= _LEAST_LENGTH


def looks(counts: OutlineCounts, a: int, b: int) -> tuple[float, float]:
    """How often pixels look like a rather than b in the core of a, and in that of b."""
    (like_b_b, like_a_b), (like_b_a, like_a_a) = counts.cores[a, b].tolist()
    return like_a_a / max(like_b_a + like_a_a, 1), like_a_b / max(like_b_b + like_a_b, 1)


def touching(counts: OutlineCounts) -> list[tuple[int, int]]:
    """The pairs of classes that `touch`."""
    return [(a, b) for a in range(len(counts.length)) for b in range(a) if touch(counts, a, b)]


def look_groups(counts: OutlineCounts) -> Tensor:  # (C,) of whole numbers
    """For each class the first of those that touch it, or one that does, and that looks do not tell from it.

    Where looks tell all classes apart that touch, each is its own.
    """
    groups = torch.arange(len(counts.length))
    for a, b in touching(counts):
        alpha, beta = looks(counts, a, b)
        if alpha - beta < LEAST_CONTRAST:
            first, second = sorted((int(groups[a]), int(groups[b])))
            groups[groups == second] = first
    return groups


def outline_thresholds(counts: OutlineCounts, *, least_shift: float = LEAST_SHIFT) -> Tensor:  # (C, C), antisymmetric
    r"""The log-ratio :math:`\tau_{ab}` of a to b above which a doubtful pixel is more often a than not.

    With v = 1 for a pixel that looks like a, and its mean :math:`\alpha` in the core of a and :math:`\beta` in that of
    b, :math:`(v - \beta) / (\alpha - \beta)` has the mean 1 among pixels of a and 0 among those of b, whatever looks
    are worth (adjusted counting, Forman 2008). So

    .. math:: \tau_{ab} = \arg\max_t \sum_{i:\, \log p_{ia} / p_{ib} > t}
              \Bigl( \frac{v_i - \beta}{\alpha - \beta} - \theta \Bigr)

    with :math:`\theta = 1/2`. If b is the background (class 0), a gives pixels up only where fewer than `WORTH` of them
    are its own (:math:`\tau > 0` for this :math:`\theta`).

    0 where looks say little (:math:`\alpha - \beta` below `LEAST_CONTRAST`), where the classes hardly touch, where the
    pixels between 0 and :math:`\tau` are fewer than ``least_shift`` for each step of the outline, and where looks
    deceive near outlines: before a class loses pixels because they look like the other, those that it almost certainly
    has (log-ratio from 4 to 5) must be counted as its own (`MOST_DECEIVED`).
    """
    classes = len(counts.length)
    found = torch.zeros(classes, classes, dtype=torch.float64)
    edges = torch.linspace(-_LARGEST, _LARGEST, _BINS + 1, dtype=torch.float64)
    votes = counts.votes.cpu()
    for a, b in touching(counts):
        alpha, beta = looks(counts, a, b)
        pixels = votes[a, b].sum(1)
        if alpha - beta < LEAST_CONTRAST:
            continue
        own = (votes[a, b, :, 1] - beta * pixels) / (alpha - beta)  # pixels of a, by log-ratio
        best = _best_edge(own - pixels / 2)
        if best > _BINS // 2 and b == 0:
            best = max(_BINS // 2, _best_edge(own - WORTH * pixels))
        low, high = sorted((best, _BINS // 2))
        if float(pixels[1:-1][low:high].sum()) < least_shift * float(counts.length[a, b]):
            continue
        sure = slice(-1 - _SURE, -1) if best > _BINS // 2 else slice(1, 1 + _SURE)  # of the class that loses pixels
        share = float(own[sure].sum()) / max(float(pixels[sure].sum()), 1.0)
        deceived = 1 - share if best > _BINS // 2 else share
        if deceived <= MOST_DECEIVED or float(pixels[sure].sum()) < _LEAST_SURE * float(pixels.sum()):
            found[a, b] = edges[best]
    return found - found.T


def _best_edge(evidence: Tensor) -> int:
    """The edge with the largest sum over the bins above it."""
    return int(evidence.flip(0).cumsum(0).flip(0)[1:].argmax())


def class_offsets(thresholds: Tensor, counts: OutlineCounts) -> Tensor:  # (C, C) -> (C,)
    r"""Offsets b of the log-probabilities that move every outline as its threshold says, as well as they can together.

    .. math:: b = \arg\min_b \sum_{a > b} \sqrt{L_{ab}}\, (b_a - b_b + \tau_{ab})^2, \quad \sum_c b_c = 0

    over the pairs of classes that have an outline in common, of length L: long outlines speak louder, but a class with
    a short one is not silenced.
    """
    classes = len(thresholds)
    rows, wanted = [torch.ones(classes, dtype=torch.float64)], [0.0]
    for a, b in touching(counts):
        row = torch.zeros(classes, dtype=torch.float64)
        row[a], row[b] = 1.0, -1.0
        loudness = float(counts.length[a, b]) ** (1 / 4)  # squared below
        rows.append(loudness * row)
        wanted.append(-loudness * float(thresholds[a, b]))
    solution: Tensor = torch.linalg.pinv(torch.stack(rows)) @ torch.tensor(wanted, dtype=torch.float64)
    return solution
