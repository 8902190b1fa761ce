r"""Noise matrices by counting: what a model believes against what the labels say, for pixels and for pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from jcas.core.checks import (
    IGNORE,
    as_labels,
    check_num_classes,
    check_probabilities,
    check_transition,
    check_weight,
)
from jcas.core.transition import from_counts, symmetric

CORE = 1 / 4
"""Share of the pixels given to a class, the surest ones, that speak for it."""

CERTAINTIES = 257
"""Steps of `certainty`."""

_STEPS_PER_NAT = 16
_WORST_CONDITION = 1e6  # of a matrix whose inverse is worth something


def confusion_counts(
    believed: Tensor,  # (B, *spatial) classes that a model believes in
    noisy: Tensor,  # (B, *spatial) observed labels, 255 = ignore
    num_classes: int,
    *,
    weight: Tensor | None = None,  # (B, *spatial) trust in each pixel
) -> Tensor:  # (B, C, C) float64
    r"""Pixels (or their summed weights) of each image by believed class m (row) and observed label n (column).

    Summed over images and row-normalised (`from_counts`) this estimates T_C: unlike a matrix learned by gradient it has
    no weight to choose and cannot run away from the model's own predictions.

    >>> confusion_counts(torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1, 255]]), 2)
    tensor([[[1., 1.],
             [0., 0.]]], dtype=torch.float64)
    """
    check_num_classes(num_classes)
    believed = as_labels(believed, noisy.shape, "believed", num_classes=num_classes)
    noisy = as_labels(noisy, believed.shape, num_classes=num_classes)
    batch, cells = len(believed), num_classes * num_classes
    valid = ((noisy != IGNORE) & (believed != IGNORE)).flatten(1)
    cell = believed.flatten(1) * num_classes + noisy.flatten(1)
    cell = (cell + cells * torch.arange(batch, device=cell.device)[:, None])[valid]
    trust = None
    if weight is not None:
        check_weight(weight, noisy.shape)
        trust = weight.flatten(1)[valid].double()
    counts = torch.bincount(cell, weights=trust, minlength=batch * cells)
    return counts.view(batch, num_classes, num_classes).double()


def core_confidence(probs: Tensor, where: Tensor) -> Tensor:  # (C, pixels), (pixels,) -> (C,)
    """The least probability of the surest quarter, and one more, of the pixels given to each class (2: it has none)."""
    sure, named = probs.max(0)
    least = probs.new_full((len(probs),), 2.0)
    for index in range(len(probs)):
        own = sure[(named == index) & where]
        if len(own):
            least[index] = own.kthvalue(len(own) - int(CORE * len(own))).values
    return least


def certainty(sure: Tensor) -> Tensor:  # probabilities of any shape -> steps below CERTAINTIES
    r"""How sure a model is of a class, in steps.

    .. math:: \lfloor -16 \ln(1 - P) \rfloor

    tells probabilities next to 1 apart, too, where most of a trained model's are; from 16 nats (1 - 1e-7) on float32
    does not.
    """
    return (-_STEPS_PER_NAT * torch.log1p(-sure.float().clamp_max(1))).clamp_max(CERTAINTIES - 1).long()


def counts_by_certainty(
    probs: Tensor,  # (B, C, *spatial)
    noisy: Tensor,  # (B, *spatial) observed labels, 255 = ignore
    *,
    weight: Tensor | None = None,  # (B, *spatial) trust in each pixel
) -> Tensor:  # (CERTAINTIES, C, C) float64
    """`confusion_counts` of all images by `certainty`: those of batches and processes add up, and keep their order.

    Memory O(257 C^2), whatever the images.
    """
    check_probabilities(probs)
    num_classes = probs.shape[1]
    noisy = as_labels(noisy, probs.shape[:1] + probs.shape[2:], num_classes=num_classes)
    valid = noisy != IGNORE
    sure, believed = probs.max(1)  # argmax takes eight times as long
    cell = (certainty(sure) * num_classes + believed) * num_classes + noisy
    trust = None
    if weight is not None:
        check_weight(weight, noisy.shape)
        trust = weight[valid].double()
    shape = (CERTAINTIES, num_classes, num_classes)
    return torch.bincount(cell[valid], weights=trust, minlength=math.prod(shape)).view(shape).double()


def surest_share(counts: Tensor) -> Tensor:  # (CERTAINTIES, C, C) -> (CERTAINTIES, C) float64 in [0, 1]
    """How much of each certainty belongs to the surest quarter (`CORE`) of the pixels believed to be of a class.

    Of counts over a whole epoch: the surest of each batch are surer in a large batch than in a small one. Where only a
    part of a certainty is needed it is that part of every label.

    >>> counts = torch.zeros(CERTAINTIES, 2, 2)
    >>> counts[9, 0], counts[5, 0] = torch.tensor([8.0, 2.0]), torch.tensor([40.0, 50.0])  # 100 pixels, 10 of them sure
    >>> surest_share(counts)[[9, 5, 1], 0].round(decimals=3)  # those and a sixth of the others
    tensor([1.0000, 0.1670, 0.0000], dtype=torch.float64)
    """
    size = counts.double().sum(2)
    surer = size.flip(0).cumsum(0).flip(0) - size
    return ((CORE * size.sum(0) - surer) / size.where(size > 0, 1)).clamp(0, 1) * (size > 0)


def counted_transition(
    counts: Tensor,  # (C, C) believed against observed, summed over images
    *,
    doubt: float = 1e-3,
) -> Tensor:  # (C, C) float64
    r"""T_C from counts, with a little doubt: classes hardly ever believed in take the noise of all the others.

    .. math:: T(m, \cdot) \propto M_{m\cdot} + \kappa \textstyle\sum M \; S(m, \cdot)

    where S is symmetric noise of the overall rate of disagreement and :math:`\kappa` the doubt, as a share of all
    pixels. A class that a young model never predicts would otherwise seem to be free of noise (an identity row), and
    the corrected loss would then never let it be predicted; and a label never seen beside a class would cost -log 0.

    A row whose largest entry is not on the diagonal tells of the model, not of the noise: where background is common
    and its labels often flip, most pixels that a young model takes for a rare class are background; and where one class
    flips into the next, the model may have found the one and call it the other. Believed, even in part, such a row
    makes two classes one, or swaps them, for good. It is replaced by that of S, under which each class is again called
    what it is labelled most often.

    >>> counted_transition(torch.tensor([[600.0, 400.0], [0.0, 0.0]])).numpy().round(3).tolist()
    [[0.6, 0.4], [0.4, 0.6]]
    >>> counted_transition(torch.tensor([[900.0, 100.0], [60.0, 40.0]]), doubt=0.0).numpy().round(3).tolist()
    [[0.9, 0.1], [0.145, 0.855]]
    """
    counts = counts.detach().double()
    total = counts.sum()
    if not bool(total > 0):
        return torch.eye(len(counts), dtype=torch.float64, device=counts.device)
    disagreement = max(0.0, 1 - float(counts.diagonal().sum() / total))  # two sums of one thing may differ by rounding
    rate = min(disagreement, 1 - 1 / len(counts))
    uniform = symmetric(len(counts), rate).to(counts)
    transition = from_counts(counts + doubt * total * uniform)
    believed = transition.diagonal() >= transition.amax(1)
    return torch.where(believed[:, None], transition, uniform)


def invertible(transition: Tensor) -> bool:  # (C, C)
    """Whether labels under this noise tell the classes apart, so that an inverse is worth something."""
    return bool(torch.linalg.cond(transition.detach().double()) <= _WORST_CONDITION)


def clean_counts(
    counts: Tensor,  # (C, C) by believed class (row) and noisy label (column)
    transition: Tensor,  # (C, C) T[m, n] = p(noisy = n | clean = m)
) -> Tensor:  # (C, C) float64, by believed and true class
    r"""How often a model believes in m where c is true, estimated from noisy labels alone.

    .. math:: E[N_{mn}] = \sum_c M_{mc}\, T(c, n) \quad\Rightarrow\quad M = N\, T^{-1}

    Unbiased where labels were flipped independently of what the model believes, as on images that it was not trained
    on, and where T is right; so scores made of M (accuracy, Jaccard) can be known without a single true label. Small
    entries may come out below 0.

    >>> true = torch.tensor([[90.0, 5.0], [10.0, 15.0]])
    >>> T = torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    >>> clean_counts(true @ T, T).numpy().round(3).tolist()
    [[90.0, 5.0], [10.0, 15.0]]
    """
    check_transition(transition)
    if counts.shape != transition.shape:
        raise ValueError(
            f"counts must have shape {tuple(transition.shape)}, summed over images; got {tuple(counts.shape)}"
        )
    matrix = transition.detach().double()
    if not invertible(matrix):
        raise ValueError("transition has no inverse: labels under this noise do not tell the classes apart")
    return torch.linalg.solve(matrix, counts.detach().double(), left=False)


def estimated_jaccard(
    counts: Tensor,  # (..., C, C) by believed class (row) and noisy label (column); of the same pixels all of them
    transition: Tensor,  # (C, C) T[m, n] = p(noisy = n | clean = m)
) -> Tensor:  # (...,) float64
    r"""The overlap of predictions with the *true* classes but background, estimated from noisy labels alone.

    .. math:: J = \frac{\sum_{c > 0} M_{cc}}{\sum_{c > 0} (P_c + S_c - M_{cc})}, \qquad M = N\, T^{-1}, \quad
              P_c = \sum_m M_{cm}, \quad S_c = \max\bigl(\textstyle\sum_m M_{mc},\, M_{cc}\bigr)

    (`clean_counts`), pooled over pixels and classes, so that strays of a class that is not there weigh no more than
    they are. The size S of a class is the same for all predictions that are compared, and no less than what any of them
    has of it: a T that is wrong by hundredths misses the size of a rare class by a multiple, but hardly moves a rank.

    >>> T = torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    >>> estimated_jaccard(torch.tensor([[90.0, 5.0], [10.0, 15.0]]) @ T, T).round(decimals=3)  # 15 / (25 + 20 - 15)
    tensor(0.5000, dtype=torch.float64)
    """
    flat = counts.reshape(-1, *counts.shape[-2:])
    true = torch.stack([clean_counts(each, transition) for each in flat])
    both = true.diagonal(dim1=1, dim2=2)
    size = torch.maximum(true.sum(1), both).amax(0)
    union = (true.sum(2) + size - both)[:, 1:].sum(1)
    return (both[:, 1:].sum(1) / union.where(union > 0, 1)).reshape(counts.shape[:-2])


def pair_counts(confusion: Tensor) -> Tensor:  # (B, C, C) -> (2, 2) float64
    r"""Ordered pixel pairs of all images by believed relation (row) and observed one (column), 0 = different.

    .. math:: \text{same, same} = \sum_{mn} M_{mn}^2, \quad \text{believed same} = \sum_m \Bigl(\sum_n M_{mn}\Bigr)^2,
              \quad \text{observed same} = \sum_n \Bigl(\sum_m M_{mn}\Bigr)^2

    for the confusion counts M of an image: all n^2 pairs from C^2 numbers, whatever the noise looks like.
    Row-normalised it estimates T_A without assuming that the noise strikes pixels independently, as Theorem 1 does.

    >>> pair_counts(torch.tensor([[[2.0, 1.0], [0.0, 1.0]]]))
    tensor([[4., 2.],
            [4., 6.]], dtype=torch.float64)
    """
    if confusion.ndim != 3 or confusion.shape[1] != confusion.shape[2]:
        raise ValueError(f"confusion must have shape (B, C, C), got {tuple(confusion.shape)}")
    counts = confusion.detach().double()
    both = counts.square().sum()
    believed_same = counts.sum(2).square().sum()
    observed_same = counts.sum(1).square().sum()
    total = counts.sum((1, 2)).square().sum()
    rows = [
        torch.stack([total - believed_same - observed_same + both, observed_same - both]),
        torch.stack([believed_same - both, both]),
    ]
    return torch.stack(rows).clamp_min(0)  # with fractional weights the differences of equal sums are only almost 0
