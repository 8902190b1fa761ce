r"""What the labels of the pixels around say about a pixel's class, where labels were flipped one by one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jcas.core.checks import IGNORE, as_labels, check_probabilities, check_transition

LEAST_LIKELY = 1e-4
"""No label is thought less likely than this: T is an estimate."""

LEAST_EVIDENCE = 1e-5
"""Nor is a class by what the neighbours say, beside the class that they speak for: the image has its word, too."""

_AROUND = [(row, column) for row in range(3) for column in range(3) if (row, column) != (1, 1)]

_TINY = 1e-9  # two classes that nobody believes in are shared, not divided by zero


@torch.no_grad()
def neighbour_evidence(
    probs: Tensor,  # (B, C, H, W) clean-class probabilities P
    noisy: Tensor,  # (B, H, W)    observed labels, 255 = ignore
    transition: Tensor,  # (C, C)  T[m, n] = p(noisy = n | clean = m)
) -> Tensor:  # (B, C, H, W) between LEAST_EVIDENCE and 1
    r"""The likelihood of the eight labels around a pixel for each class that it may have, up to a factor.

    .. math::
        E_i(c) \propto \prod_{j \in N(i)} \Bigl[ s_{ij}(c)\, T(c, \tilde y_j)
            + (1 - s_{ij}(c)) \sum_m r_{ij}(m)\, T(m, \tilde y_j) \Bigr], \qquad
        s_{ij}(c) = \min\Bigl(1, \frac{P_j(c)}{P_i(c)}\Bigr), \quad r_{ij} \propto \max(0, P_j - P_i)

    The chance s that a neighbour shares the class is that of the maximal coupling: the two pixels agree as often as
    two pixels with these probabilities can, and a neighbour that does not is of a class that it has more of. Where
    predictions are alike labels are pooled; across an outline that the model sees they are not. A pixel's own label
    is not in it: :math:`P_i(c)\,T(c, \tilde y_i)\,E_i(c)` is the posterior with all labels, :math:`P_i(c)\,E_i(c)`
    that of a judge who has not seen the label.

    It holds for labels that were flipped independently, which those of an enlarged mask are not: adjacent ones repeat.
    On a grid of half the side or less those of a mask that was enlarged up to twice are independent again. Cost O(n C).

    >>> probs = torch.full((1, 2, 1, 3), 0.5)
    >>> noisy = torch.tensor([[[1, 0, 1]]])
    >>> T = torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    >>> neighbour_evidence(probs, noisy, T)[0, :, 0, 1]  # (0.4 / 0.6)^2 and 1
    tensor([0.4444, 1.0000])
    """
    check_probabilities(probs)
    if probs.ndim != 4:
        raise ValueError(f"probs must have shape (B, C, H, W), got {tuple(probs.shape)}")
    num_classes, (height, width) = probs.shape[1], probs.shape[2:]
    check_transition(transition, num_classes=num_classes)
    noisy = as_labels(noisy, probs.shape[:1] + probs.shape[2:], num_classes=num_classes)
    if probs.dtype in (torch.float16, torch.bfloat16):
        probs = probs.float()
    table = transition.to(probs).clamp_min(LEAST_LIKELY)
    table = torch.cat([table, table.new_ones(num_classes, 1)], 1)  # a label that is not there says nothing
    likelihood = table[:, noisy.where(noisy != IGNORE, num_classes)].movedim(0, 1)
    likelihood = functional.pad(likelihood, (1, 1, 1, 1), value=1.0)
    probs = probs + _TINY
    around, inverse = functional.pad(probs, (1, 1, 1, 1), mode="replicate"), 1 / probs
    total = torch.ones_like(probs)
    for row, column in _AROUND:
        window = (slice(None), slice(None), slice(row, row + height), slice(column, column + width))
        theirs, said = around[window], likelihood[window]
        share = (theirs * inverse).clamp_max_(1)
        more = (theirs - probs).clamp_min_(0)
        otherwise = ((more * said).sum(1, keepdim=True) + _TINY) / (more.sum(1, keepdim=True) + _TINY)
        total *= torch.lerp(otherwise, said, share)  # eight factors of at least LEAST_LIKELY: no underflow
    return total.div_(total.amax(1, keepdim=True)).clamp_min_(LEAST_EVIDENCE)
