r"""Differentiated affinity reasoning (DAR): what like and unlike pixels say about a pixel's class."""

from __future__ import annotations

from torch import Tensor

from jcas.core.affinity import Affinity


def refine(
    coarse: Tensor,  # (B, C, *spatial) logits Q on the affinity grid
    affinity: Affinity,
    intra: bool = True,
    inter: bool = True,
    *,
    cosine_reverse: bool = False,
) -> Tensor:  # (B, C, *spatial) logits P
    r"""Add what like pixels say, take away what unlike pixels say.

    .. math:: P = \tfrac12 (P_{intra} + P_{inter}) = Q + \tfrac12 \bigl(P' Q - P'_{re} Q\bigr)    \qquad (Eq. 1)

    Eq. 1 writes P on its own right-hand side; Q is meant. Works on logits, as the released code does. Without
    ``intra`` or ``inter`` the corresponding term is left out, without both the result is Q. ``cosine_reverse``
    chooses the genuine reverse map norm(1 - cosine) instead of the paper's norm(1 - P'), see
    `Affinity.propagate_reverse`. Logits that are the same everywhere come back unchanged. Cost O(n d C).

    >>> from torch import ones, tensor
    >>> refine(tensor([[[2.0, -2.0]]]), Affinity(ones(1, 3, 2)))  # pixels all alike: both terms average them
    tensor([[[ 2., -2.]]])
    """
    refined = coarse
    if intra:
        like = affinity.propagate(coarse)
        refined = refined + 0.5 * like
    if inter and intra and not cosine_reverse:
        refined = refined - 0.5 * affinity.unlike_from_like(coarse, like)  # shares the product above
    elif inter:
        refined = refined - 0.5 * affinity.propagate_reverse(coarse, cosine=cosine_reverse)
    return refined
