"""Co-teaching: two networks that pick each other's lessons."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from jcas.methods.base import Method, another_draw
from jcas.methods.selection import easiest, peer_losses, peer_training, remembered
from jcas.schema import Batch


class CoTeaching(Method):
    """Co-teaching: each of two networks trains on the pixels that the other one finds easy.

    Han et al., Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels, NeurIPS 2018. The loss
    of network 1 is cross-entropy over the R(e) pixels of least loss of network 2, and the other way round, with
    R(e) = 1 - forget_rate * min(e / ramp, 1) in epoch e.

    Learns: two models of the same architecture; the first predicts. ``forget_rate`` is the share of wrong labels, one
    number or one for each given class. The paper takes the true one, and so does `jcas benchmark` where true labels of
    the training images are known, class by class; 0.2 elsewhere is ours. ``ramp`` is 10 epochs of 200 there and a fifth
    of the run here. Differs from the original: pixels instead of images, and chosen class by class, because over all
    pixels the rare classes are hard and would vanish. The second network starts from another draw of the initial
    weights; a pretrained encoder is the same in both.
    """

    paper = "Han et al., NeurIPS 2018"
    needs = "2 networks, the share of wrong labels"
    told_wrong_shares = "forget_rate"

    def __init__(
        self, model: nn.Module, num_classes: int, *, forget_rate: float | list[float] = 0.2, ramp: int = 10
    ) -> None:
        super().__init__(model, num_classes)
        rates = forget_rate if isinstance(forget_rate, list) else [forget_rate] * num_classes
        if len(rates) != num_classes or not all(0 <= rate < 1 for rate in rates):
            raise ValueError(f"forget_rate must lie in [0, 1), for all of {num_classes} classes, got {forget_rate}")
        if ramp < 0:
            raise ValueError(f"ramp must not be negative, got {ramp}")
        self.forget_rates = rates
        self.ramp = ramp
        self.second = another_draw(model, seed=2)
        self.epoch: Tensor
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))

    @classmethod
    def schedule(cls, epochs: int) -> dict[str, Any]:
        """A fifth of the run until the full forget rate."""
        return {"ramp": max(1, epochs // 5)}

    def networks(self) -> list[nn.Module]:
        """Both."""
        return [self.model, self.second]

    def start_epoch(self, epoch: int) -> None:
        """Remember the epoch, by which the selection tightens."""
        self.epoch.fill_(epoch)

    def kept_shares(self) -> list[float]:
        """R(e) of each given class."""
        return [remembered(int(self.epoch), forget_rate=rate, ramp=self.ramp) for rate in self.forget_rates]

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of each network on the other one's choice."""
        main, auxiliary, counts = peer_losses([network(batch.image) for network in self.networks()], batch)
        first, second = (easiest(loss, batch.noisy, counts > 0, keep=self.kept_shares()) for loss in main)
        return peer_training(main, auxiliary, counts, [second, first])
