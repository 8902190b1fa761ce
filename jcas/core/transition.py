r"""Noise transition matrices: ``T[m, n] = p(noisy = n | clean = m)``, rows sum to 1.

Two learnable forms and the matrices of the usual synthetic noises.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jcas.core.checks import check_num_classes, check_rate, check_square, check_transition

_INITIAL_WEIGHT = -2.0  # sigmoid(-2) = 0.119: each class starts with most of its mass on itself


class TransitionMatrix(nn.Module):
    r"""Learnable matrix of the paper and of VolMin (Li et al., ICML 2021): row-normalised identity plus sigmoids.

    .. math:: T = \mathrm{rownorm}\bigl(I + \sigma(w) \odot (1 - I)\bigr), \qquad w_{mn} = -2 \text{ at the start}

    The diagonal is the largest entry of its row whatever ``w`` is: it never falls below 1/C, and never below 0.5
    for the 2 x 2 affinity matrix. Noise beyond that (symmetric 0.5 needs an affinity diagonal of 0.333 for four
    classes) takes :class:`FreeTransitionMatrix`, or `class_to_affinity` of a class matrix.

    >>> TransitionMatrix(2)().detach()
    tensor([[0.8935, 0.1065],
            [0.1065, 0.8935]])
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.weight = nn.Parameter(torch.full((num_classes, num_classes), _INITIAL_WEIGHT))

    def forward(self) -> Tensor:
        """The matrix (C, C)."""
        identity = torch.eye(len(self.weight), device=self.weight.device, dtype=self.weight.dtype)
        raw = identity + self.weight.sigmoid() * (1 - identity)
        return raw / raw.sum(1, keepdim=True)


class FreeTransitionMatrix(nn.Module):
    r"""Learnable matrix whose rows may be any distribution, so that a diagonal can fall below 0.5.

    .. math:: T(m, \cdot) = \mathrm{softmax}(w(m, \cdot))

    Starts from ``initial`` (a row-stochastic matrix with positive entries; by default the start of
    :class:`TransitionMatrix`). Freedom has a price: nothing keeps two classes from swapping.

    >>> FreeTransitionMatrix(3, initial=symmetric(3, 0.6))().detach().diagonal()
    tensor([0.4000, 0.4000, 0.4000])
    """

    def __init__(self, num_classes: int, *, initial: Tensor | None = None) -> None:
        super().__init__()
        check_num_classes(num_classes)
        if initial is None:
            initial = TransitionMatrix(num_classes)().detach()
        check_transition(initial, "initial", num_classes=num_classes)
        if not bool((initial > 0).all()):
            raise ValueError(f"initial must be positive (a softmax cannot reach 0), got {initial.tolist()}")
        self.weight = nn.Parameter(initial.detach().log().to(torch.get_default_dtype()))

    def forward(self) -> Tensor:
        """The matrix (C, C)."""
        return self.weight.softmax(1)


def symmetric(num_classes: int, rate: float) -> Tensor:
    """Every wrong class equally likely: 1 - rate on the diagonal, rate / (C - 1) elsewhere (float64).

    >>> symmetric(3, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    check_num_classes(num_classes)
    check_rate(rate)
    matrix = torch.full((num_classes, num_classes), rate / (num_classes - 1), dtype=torch.float64)
    return matrix.fill_diagonal_(1 - rate)


def asymmetric(num_classes: int, rate: float, seed: int = 0) -> Tensor:
    """Random wrong classes (VolMin's rule): off-diagonals drawn from U(0.1, 1), scaled to sum to rate (float64).

    >>> matrix = asymmetric(4, 0.5, seed=7)
    >>> matrix.diagonal().tolist(), matrix.sum(1).allclose(torch.ones(4, dtype=torch.float64))
    ([0.5, 0.5, 0.5, 0.5], True)
    """
    check_num_classes(num_classes)
    check_rate(rate)
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(num_classes, num_classes, generator=generator, dtype=torch.float64) * 0.9 + 0.1
    matrix.fill_diagonal_(0)
    return (matrix * (rate / matrix.sum(1, keepdim=True))).fill_diagonal_(1 - rate)


def pair_flip(num_classes: int, rate: float) -> Tensor:
    """Each class is mistaken for the next one only, the last for the first (float64).

    >>> pair_flip(3, 0.25).tolist()
    [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
    """
    check_num_classes(num_classes)
    check_rate(rate)
    identity = torch.eye(num_classes, dtype=torch.float64)
    return (1 - rate) * identity + rate * identity.roll(1, dims=1)


def from_counts(counts: Tensor) -> Tensor:  # (C, C) counts[m, n] = pixels of clean class m labelled n
    """Rows of a confusion count as distributions (float64); a class that was never seen keeps its own label.

    >>> from_counts(torch.tensor([[3, 1], [0, 0]])).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    check_square(counts, "counts")
    matrix = counts.detach().double()
    totals = matrix.sum(1, keepdim=True)
    unseen = torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
    return torch.where(totals > 0, matrix / totals.clamp_min(torch.finfo(torch.float64).tiny), unseen)
