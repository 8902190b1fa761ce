"""SCE: cross-entropy both ways round."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import pixel_cross_entropy, reverse_cross_entropy, trust, trusted_mean
from jcas.schema import Batch


class SCE(HeadLossMethod):
    r"""Symmetric cross-entropy: cross-entropy to learn, reverse cross-entropy to not learn what is wrong.

    Wang et al., Symmetric Cross Entropy for Robust Learning with Noisy Labels, ICCV 2019.

    .. math:: L = \alpha\,CE + \beta\,RCE, \qquad RCE = -\log(10^{-4})\,\frac1K \sum_k (1 - P_{\tilde Y(k)}(k))

    Learns: the model. ``alpha`` 0.1 and ``beta`` 1 are the paper's for ten classes (6 and 0.1 for a hundred), log 0 is
    its -4 in decimal. Differs from the original: per pixel instead of per image.
    """

    paper = "Wang et al., ICCV 2019"

    def __init__(self, model: nn.Module, num_classes: int, *, alpha: float = 0.1, beta: float = 1.0) -> None:
        super().__init__(model, num_classes)
        self.alpha = alpha
        self.beta = beta

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """SCE of one head."""
        forward = trusted_mean(pixel_cross_entropy(logits, batch.noisy), trust(batch.noisy, batch.weight))
        reverse = reverse_cross_entropy(logits.float().softmax(1), batch.noisy, weight=batch.weight)
        return self.alpha * forward + self.beta * reverse
