"""Plain cross-entropy: what everybody does, and on clean labels the upper bound."""

from __future__ import annotations

from torch import Tensor

from jcas.methods.base import AUXILIARY_WEIGHT, Method, class_loss
from jcas.schema import Batch


class Baseline(Method):
    r"""Believe the labels: cross-entropy of the main head plus 0.1 times that of the auxiliary head.

    Chen et al., DeepLab, TPAMI 2018. Trained on clean labels it is the upper bound of a benchmark.

    .. math:: L = CE(P, \tilde Y) + 0.1\, CE(P_{aux}, \tilde Y)

    Learns: the model. The weight 0.1 of the auxiliary head is that of JCAS's released code. Differs from the original:
    no conditional random field after the network, and any encoder.
    """

    paper = "Chen et al., TPAMI 2018"

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of both heads."""
        output = self.model(batch.image)
        identity = self.noise()
        parts = {"class_loss": class_loss(output.logits, batch, identity)}
        loss = parts["class_loss"]
        if output.auxiliary is not None:
            parts["auxiliary_loss"] = class_loss(output.auxiliary.logits, batch, identity)
            loss = loss + AUXILIARY_WEIGHT * parts["auxiliary_loss"]
        return {"loss": loss, **parts}
