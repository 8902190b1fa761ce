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

    Learns: two models of the same architecture; the first predicts. ``forget_rate`` is the assumed noise rate (the
    paper takes the true one; 0.2 here); ``ramp`` is 10 epochs of 200 there and a fifth of the run here.
    Differs from the original: pixels instead of images, and chosen class by class, because over all pixels the rare
    classes are hard and would vanish. The second network starts from another draw of the initial weights; a pretrained
    encoder is the same in both.
    """

    paper = "Han et al., NeurIPS 2018"
    needs = "2 networks"

    def __init__(self, model: nn.Module, num_classes: int, *, forget_rate: float = 0.2, ramp: int = 10) -> None:
        super().__init__(model, num_classes)
        if not 0 <= forget_rate < 1:
            raise ValueError(f"forget_rate must lie in [0, 1), got {forget_rate}")
        if ramp < 0:
            raise ValueError(f"ramp must not be negative, got {ramp}")
        self.forget_rate = forget_rate
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

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of each network on the other one's choice."""
        main, auxiliary, counts = peer_losses([network(batch.image) for network in self.networks()], batch)
        keep = remembered(int(self.epoch), forget_rate=self.forget_rate, ramp=self.ramp)
        first, second = (easiest(loss, batch.noisy, counts > 0, keep=keep) for loss in main)
        return peer_training(main, auxiliary, counts, [second, first])
