r"""The n x n affinity map of an image as an operator that is never built."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

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
            self.unit = functional.normalize(flat.relu(), dim=1)  # (B, d, n)

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
            weighted, row_sum = self._times(values)
            total, weighted = self._flat(values).sum(2, keepdim=True), weighted * _inverse(row_sum)
            remaining = torch.full_like(row_sum, self.num_pixels - 1)
        else:
            # n - (row sum) is a small difference of large numbers where most pixels are alike: float64, and what the
            # rounding of the unit vectors leaves of n - n is not a dissimilarity.
            weighted, row_sum = self._times(values, torch.float64)
            total, remaining = self._flat(values).double().sum(2, keepdim=True), self.num_pixels - row_sum
            rounding = 64 * torch.finfo(self.unit.dtype).eps * self.num_pixels
            remaining = remaining.where(remaining > rounding, 0)
        reverse = (total - weighted) * _inverse(remaining) * (row_sum > 0)
        return reverse.view_as(values).to(values.dtype)

    def to_dense(self) -> Tensor:  # (B, n, n)
        """The cosine map itself, O(n^2): for tests and pictures only."""
        return self.unit.transpose(1, 2) @ self.unit

    def _flat(self, values: Tensor) -> Tensor:
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


def _inverse(sums: Tensor) -> Tensor:
    """1 / sums, and 0 (with gradient 0) where the sum is 0."""
    positive = sums > 0
    return positive / sums.where(positive, 1)
