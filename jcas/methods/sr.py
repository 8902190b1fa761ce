"""SR: sparse regularisation of predictions on the unit sphere."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.core import sparsity
from jcas.methods.base import HeadLossMethod, resized
from jcas.methods.losses import pixel_cross_entropy, trust, trusted_mean
from jcas.schema import Batch


class SR(HeadLossMethod):
    r"""Sparse regularisation: predictions near one-hot make any loss robust to symmetric noise.

    Zhou et al., Learning with Noisy Labels via Sparse Regularization, ICCV 2021.

    .. math:: L = CE(\hat z / \tau, \tilde Y) + \lambda_e \frac1K \sum_k \|softmax(\hat z(k) / \tau)\|_p^p,
              \qquad \hat z = z / \|z\|_2, \quad \lambda_e = \lambda\,\rho^e

    Learns: the model. ``temperature`` 0.5, ``power`` 0.1, ``sparsity_weight`` 1.2 and its ``growth`` 1.03 an epoch are
    the paper's for ten classes; JCAS's comparison took 0.5, 0.01, 1 and 1 (no growth). With four classes a
    temperature of 0.5 caps the largest probability at 0.77 and 0.1 (the paper's for MNIST) nearly at 1.
    Differs from the original: no clipping of the gradient; probabilities, and so the choice of the epoch, come from the
    same normalised logits as the loss (the class that wins is that of the raw logits).
    """

    paper = "Zhou et al., ICCV 2021"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        *,
        temperature: float = 0.5,
        power: float = 0.1,
        sparsity_weight: float = 1.2,
        growth: float = 1.03,
    ) -> None:
        super().__init__(model, num_classes)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature
        self.power = power
        self.sparsity_weight = sparsity_weight
        self.growth = growth
        self.epoch: Tensor
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))

    def start_epoch(self, epoch: int) -> None:
        """Remember the epoch, by which the weight grows."""
        self.epoch.fill_(epoch)

    def on_sphere(self, logits: Tensor) -> Tensor:  # (B, C, H, W) -> the same
        """Logits of length one for each pixel, divided by the temperature."""
        return functional.normalize(logits.float(), dim=1) / self.temperature

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy and sparsity of one head."""
        sharp, counts = self.on_sphere(logits), trust(batch.noisy, batch.weight)
        weight = self.sparsity_weight * self.growth ** int(self.epoch)
        sparse = sparsity(sharp.softmax(1), counts > 0, power=self.power)
        return trusted_mean(pixel_cross_entropy(sharp, batch.noisy), counts) + weight * sparse

    def segment(self, images: Tensor) -> Tensor:
        """Probabilities of the normalised logits."""
        return self.on_sphere(resized(self.model(images).logits, images.shape[2:])).softmax(1)
