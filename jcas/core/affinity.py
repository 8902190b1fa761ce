r"""The n x n affinity map of an image as an operator that is never built."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jcas.core.checks import check_maps


class Affinity:
    r"""How alike any two pixels are: the cosine of their non-negative features (the paper's P').

    .. math:: a(i, j) = \frac{f_i^+ \cdot f_j^+}{\|f_i^+\| \|f_j^+\|}, \qquad f^+ = \max(f, 0)

    Because :math:`a = F F^\top` with unit rows F, a product with the map is two thin products,
    :math:`a V = F (F^\top V)`: exact, O(n d C) time, O(n (d + C)) memory. A pixel without a positive feature is
    like no other pixel: nothing is propagated to or from it, and its results are 0.

    Features of half precision are taken in float32 (the map holds sums over all pixels).

    >>> two_pixels = Affinity(torch.tensor([[[1.0, 1.0], [0.0, 1.0]]]))
    >>> two_pixels.to_dense()
    tensor([[[1.0000, 0.7071],
             [0.7071, 1.0000]]])
    """

    def __init__(self, features: Tensor) -> None:  # (B, d, *spatial)
        check_maps(features, "features")
        self.spatial = features.shape[2:]
        with torch.autocast(features.device.type, enabled=False):
            flat = features.flatten(2)
            if flat.dtype in (torch.float16, torch.bfloat16):
                flat = flat.float()
            self.unit, _ = _NonNegativeUnit.apply(flat)  # (B, d, n)

    @property
    def has_features(self) -> Tensor:  # (B, 1, n) bool
        """Pixels with a positive feature."""
        return self.unit.detach().amax(1, keepdim=True) > 0

    @property
    def num_pixels(self) -> int:
        """N, the number of pixels of one image on the affinity grid."""
        return self.unit.shape[2]

    def propagate(self, values: Tensor) -> Tensor:  # (B, C, *spatial) -> same
        r"""Average of the values over like pixels, :math:`\mathrm{norm}(a)\, V` with rows normalised to 1.

        >>> Affinity(torch.tensor([[[1.0, 1.0], [0.0, 1.0]]])).propagate(torch.tensor([[[0.0, 1.0]]]))
        tensor([[[0.4142, 0.5858]]])
        """
        weighted, row_sum = self._times(values)
        return (weighted * _inverse(row_sum)).view_as(values).to(values.dtype)

    def propagate_reverse(self, values: Tensor, *, cosine: bool = False) -> Tensor:  # (B, C, *spatial) -> same
        r"""Average of the values over unlike pixels, exact and linear in n.

        .. math:: \mathrm{norm}(1 - \mathrm{norm}(a))\, V \quad\text{or, with ``cosine``,}\quad \mathrm{norm}(1 - a)\, V

        The first is the paper's reading. Its entries are all close to 1/n (rows of norm(a) sum to 1), so that it is
        almost the spatial mean; the second weighs pixels by how much they really differ. Pixels with no unlike
        pixel (all features parallel, a single pixel) give 0.

        >>> Affinity(torch.tensor([[[1.0, 1.0], [0.0, 1.0]]])).propagate_reverse(torch.tensor([[[0.0, 1.0]]]))
        tensor([[[0.5858, 0.4142]]])
        """
        if not cosine:
            return self.unlike_from_like(values, self.propagate(values))
        # n - (row sum) is a small difference of large numbers where most pixels are alike: float64, and what the
        # rounding of the unit vectors leaves of n - n is not a dissimilarity.
        weighted, row_sum = self._times(values, torch.float64)
        remaining = self.num_pixels - row_sum
        rounding = 64 * torch.finfo(self.unit.dtype).eps * self.num_pixels
        remaining = remaining.where((remaining > rounding) & (row_sum > 0), 0)
        total = self._flat(values).double().sum(2, keepdim=True)
        return ((total - weighted) * _inverse(remaining)).view_as(values).to(values.dtype)

    def unlike_from_like(self, values: Tensor, like: Tensor) -> Tensor:
        r"""The paper's reverse product from the forward one, ``like = propagate(values)``, without another product.

        .. math:: \mathrm{norm}(1 - P')\, V = \frac{\sum_j V_j - (P' V)_i}{n - 1}

        Rows of 1 - P' sum to n - 1 because rows of P' sum to 1.
        """
        total = self._flat(values).sum(2, keepdim=True)
        share = self.has_features.to(total.dtype) / max(self.num_pixels - 1, 1)  # a single pixel: its numerator is 0
        return ((total - self._flat(like)) * share).view_as(values).to(values.dtype)

    def to_dense(self) -> Tensor:  # (B, n, n)
        """The cosine map itself, O(n^2): for tests and pictures only."""
        return self.unit.transpose(1, 2) @ self.unit

    def _flat(self, values: Tensor) -> Tensor:
        check_maps(values, "values")
        if values.ndim < 3 or values.shape[2:] != self.spatial:
            raise ValueError(
                f"values must have shape (batch, channels, {', '.join(map(str, self.spatial))}) like the features, "
                f"got {tuple(values.shape)}"
            )
        if len(values) != len(self.unit):
            raise ValueError(f"values hold {len(values)} images, the features {len(self.unit)}")
        return values.flatten(2).to(self.unit.dtype)

    def _times(self, values: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """The unnormalised product a V (B, C, n) and the row sums a 1 (B, 1, n), in one pair of thin products."""
        unit, flat = self.unit.to(dtype or self.unit.dtype), self._flat(values).to(dtype or self.unit.dtype)
        with torch.autocast(flat.device.type, enabled=False):
            with_ones = torch.cat([flat, torch.ones_like(flat[:, :1])], dim=1)
            summary = with_ones @ unit.transpose(1, 2)  # (B, C + 1, d)
            product = summary @ unit
        return product[:, :-1], product[:, -1:]


class _NonNegativeUnit(torch.autograd.Function):
    r"""max(f, 0) / ||max(f, 0)|| along the channels, 0 where that is 0/0: keeps one map for the backward pass.

    With unit vector u and norm r the gradient is :math:`[f > 0]\,(g - u\,(u \cdot g)) / r`. The norm is an output too,
    so that a second derivative sees that it depends on f. Features are scaled by their largest channel first: squares
    of very large or very small numbers leave the range of float32.
    """

    @staticmethod
    def forward(ctx: Any, flat: Tensor) -> tuple[Tensor, Tensor]:  # (B, d, n) -> (B, d, n), (B, 1, n)
        unit = flat.relu()
        largest = unit.amax(1, keepdim=True)
        unit.mul_(_inverse(largest))
        relative = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
        unit.mul_(_inverse(relative))
        norm = relative.mul_(largest)
        ctx.save_for_backward(unit, norm)
        return unit, norm

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        unit, norm = ctx.saved_tensors
        along = (unit * gradients[0]).sum(1, keepdim=True)
        gradient = (gradients[0] - unit * along) * _inverse(norm) + unit * gradients[1]
        return torch.where(unit > 0, gradient, 0)


def _inverse(sums: Tensor) -> Tensor:
    """1 / sums, and 0 (with gradient 0) where the sum is 0."""
    positive = sums > 0
    return positive / sums.where(positive, 1)
