"""SVLS: labels smoothed by those of their neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import one_hot, soft_cross_entropy, trust
from jcas.schema import Batch


def neighbour_kernel(*, sigma: float = 1.0) -> Tensor:  # (3, 3)
    """Weights of a pixel and its eight neighbours: Gaussian around, and in the middle as much as all around together.

    >>> neighbour_kernel().round(decimals=4)
    tensor([[0.0472, 0.0778, 0.0472],
            [0.0778, 0.5000, 0.0778],
            [0.0472, 0.0778, 0.0472]])
    """
    axis = torch.tensor([-1.0, 0.0, 1.0])
    around = torch.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * sigma**2))
    around[1, 1] = 0
    around = around / around.sum()
    around[1, 1] = 1
    return around / 2


def smoothed_labels(noisy: Tensor, num_classes: int, counts: Tensor, *, sigma: float) -> Tensor:  # (B, C, H, W)
    """Labels as distributions: each pixel's own and its neighbours', those left out that do not count."""
    kernel = neighbour_kernel(sigma=sigma).to(noisy.device).expand(num_classes, 1, 3, 3)
    maps = one_hot(noisy, num_classes) * counts[:, None]
    mixed = functional.conv2d(functional.pad(maps, (1, 1, 1, 1), mode="replicate"), kernel, groups=num_classes)
    return mixed / mixed.sum(1, keepdim=True).clamp_min(1e-12)


class SVLS(HeadLossMethod):
    r"""Spatially varying label smoothing: outlines get soft labels, the inside of an object keeps hard ones.

    Islam & Glocker, Spatially Varying Label Smoothing: Capturing Uncertainty from Expert Annotations, IPMI 2021.

    .. math:: L = -\frac1K \sum_k \sum_c (w * Y_c)(k) \log P_c(k)

    with a 3 x 3 Gaussian w of ``sigma`` 1 (the paper's) whose middle weighs as much as its rim, so a pixel keeps at
    least half of its label. Learns: the model. Differs from the original: ignored neighbours are left out and the rest
    is scaled up to sum to 1; neighbours count by their trust.
    """

    paper = "Islam & Glocker, IPMI 2021"

    def __init__(self, model: nn.Module, num_classes: int, *, sigma: float = 1.0) -> None:
        super().__init__(model, num_classes)
        if sigma <= 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        self.sigma = sigma

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of one head to the smoothed labels."""
        counts = trust(batch.noisy, batch.weight)
        target = smoothed_labels(batch.noisy, self.num_classes, counts, sigma=self.sigma)
        return soft_cross_entropy(logits, target, counts)
