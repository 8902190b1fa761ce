r"""Terms that act on the matrices and on the sharpness of predictions, not on labels."""

from __future__ import annotations

import torch
from torch import Tensor

from jcas.core.checks import check_maps, check_square, check_transition
from jcas.core.theorem import class_to_affinity


def class_affinity_consistency(
    transition: Tensor,  # (C, C) T_C
    affinity_transition: Tensor,  # (2, 2) T_A, index 0 = different, 1 = same
    prior: Tensor,  # (C,)   N
) -> Tensor:  # ()
    r"""How far the affinity matrix is from the one that the class matrix implies (CACR, Sec. 2.2).

    .. math:: L_{CACR} = \tfrac14 \sum_{u,v} \bigl(T_{C\to A}(u,v) - T_A(u,v)\bigr)^2

    The paper writes a 2-norm, its listing the mean square: the listing's form. The listing builds the first matrix
    in the order (same, different) and the second in the order (different, same) and so compares crossed entries;
    here both are (different, same).

    >>> identity = torch.eye(2)
    >>> class_affinity_consistency(identity, 0.5 * torch.ones(2, 2), torch.ones(2))
    tensor(0.2500)
    """
    check_transition(affinity_transition, "affinity_transition", num_classes=2)
    implied = class_to_affinity(transition, prior)
    return (implied - affinity_transition.to(implied.dtype)).square().mean()


def volume(transition: Tensor) -> Tensor:  # (C, C) -> ()
    r"""Log volume of the simplex that the rows span, :math:`\log|\det T|` (VolMin, Li et al., ICML 2021).

    Minimised beside a corrected loss it looks for the smallest simplex that still explains the noisy labels. It is
    0 for the identity and minus infinity for a singular matrix.

    >>> volume(0.5 * torch.eye(2) + 0.25)
    tensor(-0.6931)
    """
    check_square(transition, "transition")
    if transition.dtype in (torch.float16, torch.bfloat16):
        transition = transition.float()
    return torch.linalg.slogdet(transition).logabsdet


def sparsity(
    probs: Tensor,  # (B, C, *spatial)
    valid: Tensor | None = None,  # (B, *spatial) bool, pixels that count
    *,
    power: float = 0.1,
) -> Tensor:  # ()
    r"""Mean p-norm of the predictions (sparse regularisation SR, Zhou et al., ICCV 2021): least when they are one-hot.

    .. math:: \frac1K \sum_k \sum_c P_c(k)^p, \qquad 0 < p < 1

    Probabilities are floored at 1e-7, where the power's slope would grow without bound.

    >>> sparsity(torch.tensor([0.25, 0.75]).view(1, 2, 1), power=0.5)
    tensor(1.3660)
    """
    check_maps(probs, "probs")
    if not 0 < power < 1:
        raise ValueError(f"power must lie in (0, 1), got {power}")
    per_pixel = probs.clamp_min(1e-7).pow(power).sum(1)
    if valid is None:
        return per_pixel.mean()
    if valid.shape != per_pixel.shape:
        raise ValueError(f"valid must have shape {tuple(per_pixel.shape)}, got {tuple(valid.shape)}")
    return (per_pixel * valid).sum() / valid.sum().clamp_min(1)
