r"""What the labels of the pixels around say about a pixel's class, where labels were flipped one by one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jcas.core.checks import IGNORE, as_labels, check_probabilities, check_transition, check_weight

LEAST_LIKELY = 1e-4
"""No label is thought less likely than this: T is an estimate."""

LEAST_EVIDENCE = 1e-5
"""Nor is a class by what the neighbours say, beside the class that they speak for: the image has its word, too."""

FARTHEST = 8
"""Labels of masks that were enlarged more than this many times are not told from independent ones."""

_REPEATED = 0.05  # share of repeated labels from which on neighbours are not taken for independent
_AROUND = [(row, column) for row in range(3) for column in range(3) if (row, column) != (1, 1)]
_TINY = 1e-9  # a class that nobody believes in is shared, not divided by zero


@torch.no_grad()
def neighbour_evidence(
    probs: Tensor,  # (B, C, H, W) clean-class probabilities P
    noisy: Tensor,  # (B, H, W)    observed labels, 255 = ignore
    transition: Tensor,  # (C, C)  T[m, n] = p(noisy = n | clean = m)
    *,
    weight: Tensor | None = None,  # (B, H, W) trust in each label
    reach: int = 1,
) -> Tensor:  # (B, C, H, W) between LEAST_EVIDENCE and 1
    r"""The likelihood of eight labels around a pixel for each class that it may have, up to a factor.

    .. math::
        E_i(c) \propto \prod_{j \in N(i)} \Bigl[ s_{ij}(c)\, T(c, \tilde y_j)
            + (1 - s_{ij}(c)) \sum_m r_{ij}(m)\, T(m, \tilde y_j) \Bigr], \qquad
        s_{ij}(c) = \min\Bigl(1, \frac{P_j(c)}{P_i(c)}\Bigr), \quad r_{ij} \propto \max(0, P_j - P_i)

    The chance s that a neighbour shares the class is that of the maximal coupling: the two pixels agree as often as
    two pixels with these probabilities can, and a neighbour that does not is of a class that it has more of. Where
    predictions are alike labels are pooled; across an outline that the model sees they are not. A pixel's own label
    is not in it: :math:`P_i(c)\,T(c, \tilde y_i)\,E_i(c)` is the posterior with all nine labels, if the classes of the
    neighbours are independent given that of the pixel, and :math:`P_i(c)\,E_i(c)` the one without its own.

    It holds for labels that were flipped independently. Those of enlarged masks repeat the ones beside them: there
    neighbours must be taken from farther away (`independent_from`). Cost O(n C).

    Args:
        probs: what the model makes of the images.
        noisy: the labels.
        transition: the noise.
        weight: a label of weight w speaks with its likelihood to the power of w.
        reach: pixels from one neighbour to the next.

    >>> probs = torch.full((1, 2, 1, 3), 0.5)
    >>> noisy = torch.tensor([[[1, 0, 1]]])
    >>> T = torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    >>> neighbour_evidence(probs, noisy, T)[0, :, 0, 1]  # (0.4 / 0.6)^2 and 1
    tensor([0.4444, 1.0000])
    """
    check_probabilities(probs)
    if probs.ndim != 4:
        raise ValueError(f"probs must have shape (B, C, H, W), got {tuple(probs.shape)}")
    if not isinstance(reach, int) or reach < 1:
        raise ValueError(f"reach must be a whole number of at least 1, got {reach}")
    num_classes = probs.shape[1]
    check_transition(transition, num_classes=num_classes)
    noisy = as_labels(noisy, probs.shape[:1] + probs.shape[2:], num_classes=num_classes)
    if probs.dtype in (torch.float16, torch.bfloat16):
        probs = probs.float()
    probs = probs.clamp_min(_TINY)
    table = transition.to(probs).clamp_min(LEAST_LIKELY)
    table = torch.cat([table, table.new_ones(num_classes, 1)], 1)  # a label that is not there says nothing
    likelihood = table[:, noisy.where(noisy != IGNORE, num_classes)].movedim(0, 1)
    if weight is not None:
        check_weight(weight, noisy.shape)
        likelihood = likelihood ** weight.to(probs)[:, None].clamp_max(1)
    height, width = probs.shape[2:]
    border = (reach,) * 4
    likelihood = functional.pad(likelihood, border, value=1.0)  # beyond the image there are no labels
    around, inverse = functional.pad(probs, border, mode="replicate"), 1 / probs
    total = torch.ones_like(probs)
    for row, column in _AROUND:
        rows, columns = (slice(reach * step, reach * step + size) for step, size in ((row, height), (column, width)))
        theirs, said = around[:, :, rows, columns], likelihood[:, :, rows, columns]
        share = (theirs * inverse).clamp_max_(1)
        more = (theirs - probs).clamp_min_(0).add_(theirs, alpha=_TINY)  # alike: what they say is theirs
        otherwise = (more * said).sum(1, keepdim=True) / more.sum(1, keepdim=True)
        total *= torch.lerp(otherwise, said, share)  # eight factors of at least LEAST_LIKELY: no underflow
    return total.div_(total.amax(1, keepdim=True)).clamp_min_(LEAST_EVIDENCE)


@torch.no_grad()
def agreement_counts(noisy: Tensor) -> Tensor:  # (B, H, W), 255 = ignore -> (FARTHEST + 1, 2) float64
    """Pairs of labels in a row or column, and how many of them agree; row d - 1: those d pixels apart."""
    counts = torch.zeros(FARTHEST + 1, 2, dtype=torch.float64, device=noisy.device)
    for distance in range(1, FARTHEST + 2):
        for axis in (1, 2):
            length = max(0, noisy.shape[axis] - distance)
            first, second = noisy.narrow(axis, 0, length), noisy[(slice(None),) * axis + (slice(distance, None),)]
            pairs = (first != IGNORE) & (second != IGNORE)
            counts[distance - 1] += torch.stack([pairs.sum(), (pairs & (first == second)).sum()])
    return counts


def independent_from(counts: Tensor) -> int:  # (FARTHEST + 1, 2), from `agreement_counts`
    r"""How far apart labels must be not to repeat each other: 1 unless masks were enlarged or turned.

    Classes change slowly over a plane, so that the share A_d of labels d apart that agree falls in a straight line. If
    each label was repeated f times, it falls steeply up to f and bends there: the largest d with

    .. math:: A_{d-1} - 2 A_d + A_{d+1} > \frac{1}{20} (1 - A_{d+1})

    >>> independent_from(torch.tensor([[100.0, 40 - place] for place in range(9)]))
    1
    >>> independent_from(torch.tensor([[100.0, 66.0], *([100.0, 33 - place] for place in range(8))]))
    2
    """
    agreeing = (counts[:, 1] / counts[:, 0].clamp_min(1)).tolist()
    bends = [
        distance
        for distance, (near, here, far) in enumerate(zip(agreeing, agreeing[1:], agreeing[2:], strict=False), start=2)
        if near - 2 * here + far > _REPEATED * (1 - far)
    ]
    return max(bends, default=1)
