"""GCE: a loss between cross-entropy and mean absolute error."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import generalised_cross_entropy
from jcas.schema import Batch


class GCE(HeadLossMethod):
    r"""Generalised cross-entropy: a wrong label pulls less the less the model believes it.

    Zhang & Sabuncu, Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, NeurIPS 2018.

    .. math:: L = \frac1K \sum_k (1 - P_{\tilde Y(k)}(k)^q) / q

    Learns: the model. ``q``: 0.7 in the paper; towards 0 it is cross-entropy, 1 is mean absolute error (robust, slow).
    Differs from the original: per pixel instead of per image, without the truncated variant that prunes samples.
    """

    paper = "Zhang & Sabuncu, NeurIPS 2018"

    def __init__(self, model: nn.Module, num_classes: int, *, q: float = 0.7) -> None:
        super().__init__(model, num_classes)
        if not 0 < q <= 1:
            raise ValueError(f"q must lie in (0, 1], got {q}")
        self.q = q

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """GCE of one head."""
        return generalised_cross_entropy(logits.float().softmax(1), batch.noisy, q=self.q, weight=batch.weight)
