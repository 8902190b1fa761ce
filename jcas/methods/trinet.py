"""Tri-network: three networks, each taught by what the two others agree on."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.methods.base import another_draw
from jcas.methods.coteaching import CoTeaching
from jcas.methods.selection import easiest, peer_losses, peer_training
from jcas.schema import Batch


class TriNet(CoTeaching):
    """Tri-network: each of three networks trains on the pixels that both of the others find easy.

    Zhang et al., Robust Medical Image Segmentation from Non-expert Annotations with Tri-network, MICCAI 2020. The loss
    of network 1 is cross-entropy over the pixels among the R(e) of least loss of network 2 and of network 3, and so on
    in turn, with R(e) = 1 - forget_rate * min(e / ramp, 1) in epoch e.

    Learns: three models of the same architecture; the first predicts. ``forget_rate`` and ``ramp`` (a fifth of the
    run) as in co-teaching. Differs from the original: consensus is small loss in both others, as in the maintained
    re-implementation of PyMIC, chosen class by class. The networks start from different draws of the initial weights;
    a pretrained encoder is the same in all.
    """

    paper = "Zhang et al., MICCAI 2020"
    needs = "3 networks, the share of wrong labels"

    def __init__(
        self, model: nn.Module, num_classes: int, *, forget_rate: float | list[float] = 0.2, ramp: int = 10
    ) -> None:
        super().__init__(model, num_classes, forget_rate=forget_rate, ramp=ramp)
        self.third = another_draw(model, seed=3)

    def networks(self) -> list[nn.Module]:
        """All three."""
        return [self.model, self.second, self.third]

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of each network on what the two others agree on."""
        main, auxiliary, counts = peer_losses([network(batch.image) for network in self.networks()], batch)
        first, second, third = (easiest(loss, batch.noisy, counts > 0, keep=self.kept_shares()) for loss in main)
        return peer_training(main, auxiliary, counts, [second & third, first & third, first & second])
