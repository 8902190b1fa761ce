r"""Theorem 1: what the class noise does to pairs of pixels, and the two noise rates of the paper's Fig. 1."""

from __future__ import annotations

import torch
from torch import Tensor

from jcas.core.checks import check_prior, check_transition


def class_to_affinity(
    transition: Tensor,  # (C, C) T_C
    prior: Tensor,  # (C,)   N, clean class proportions or counts
) -> Tensor:  # (2, 2) T_{C->A}, index 0 = different, 1 = same
    r"""The affinity transition matrix that a class transition matrix implies (Theorem 1, corrected).

    .. math::
        T_{C\to A}(1,1) = \frac{\sum_m N_m^2 \sum_n T(m,n)^2}{\sum_m N_m^2}, \qquad
        T_{C\to A}(0,1) = \frac{\sum_n \sum_{m \ne m'} N_m T(m,n)\, N_{m'} T(m',n)}{\sum_{m \ne m'} N_m N_{m'}}

    The paper prints :math:`\sum_m [N_m \sum_n T(m,n)]^2` where the first term of the second numerator should be
    :math:`\sum_n [\sum_m N_m T(m,n)]^2`; as printed the result leaves [0, 1]. Sums over pairs of different classes
    are built from running sums, so that a prior close to one class loses no digits to a subtraction. With one class
    present no clean pair differs: that row is (1, 0). Cost O(C^2); differentiable in both arguments.

    >>> T = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    >>> class_to_affinity(T, torch.tensor([0.5, 0.5], dtype=torch.float64)).numpy().round(4).tolist()
    [[0.56, 0.44], [0.4, 0.6]]
    """
    check_transition(transition)
    check_prior(prior, len(transition))
    share, transition = _shares(prior, transition)
    flow = share[:, None] * transition  # flow[m, n] = p(clean = m, noisy = n)
    same_pairs = share.square().sum()
    different_pairs = _sum_of_cross_products(share)
    same_as_same = flow.square().sum() / same_pairs
    exists = different_pairs > 0
    different_as_same = torch.where(exists, _sum_of_cross_products(flow), 0.0) / torch.where(
        exists, different_pairs, 1.0
    )
    same = _within_unit(torch.stack([different_as_same, same_as_same]))
    return torch.stack([1 - same, same], dim=1)


def class_noise_rate(transition: Tensor, prior: Tensor) -> Tensor:
    r"""Expected share of wrong pixels, :math:`\sum_m N_m (1 - T(m,m))`.

    >>> class_noise_rate(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([3.0, 1.0]))
    tensor(0.1750)
    """
    check_transition(transition)
    check_prior(prior, len(transition))
    share, transition = _shares(prior, transition)
    return (share * (1 - transition.diagonal())).sum()


def affinity_noise_rate(transition: Tensor, prior: Tensor) -> Tensor:
    r"""Expected share of pixel pairs whose same/different label is wrong.

    .. math:: p_{same}\, T_{C\to A}(1,0) + p_{different}\, T_{C\to A}(0,1), \qquad p_{same} = \sum_m N_m^2

    Below `class_noise_rate` pairs are cleaner than pixels, which is the paper's motivation; on data that one class
    dominates it is often the other way round.

    >>> T = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    >>> round(affinity_noise_rate(T, torch.tensor([0.5, 0.5], dtype=torch.float64)).item(), 4)
    0.42
    """
    pairs = class_to_affinity(transition, prior)
    same = _shares(prior, transition)[0].square().sum()
    return same * pairs[1, 0] + (1 - same) * pairs[0, 1]


def _shares(prior: Tensor, transition: Tensor) -> tuple[Tensor, Tensor]:
    """The prior as proportions, and the matrix, in one precision of float32 or more."""
    if transition.dtype in (torch.float16, torch.bfloat16):
        transition = transition.float()
    scaled = prior.to(transition.dtype) / prior.detach().max().to(transition.dtype)  # counts may be huge
    return scaled / scaled.sum(), transition


def _sum_of_cross_products(rows: Tensor) -> Tensor:
    """Sum over m != m' of rows[m] * rows[m'], and over all columns: every term is added, none subtracted."""
    return 2 * (rows[1:] * rows.cumsum(0)[:-1]).sum()


def _within_unit(values: Tensor) -> Tensor:
    """Rounding may leave [0, 1] by an ulp; bring the value back without cutting its gradient."""
    return values - (values - values.clamp(0, 1)).detach()
