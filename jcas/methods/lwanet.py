"""LWANet: its own light network and a focal loss."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import focal_loss
from jcas.schema import Batch


class LWANetMethod(HeadLossMethod):
    r"""LWANet with a focal loss, which hardly looks at pixels that are already right; knows nothing of noise.

    Ni et al., Attention-Guided Lightweight Network for Real-Time Segmentation of Robotic Surgical Instruments, ICRA
    2020.

    .. math:: L = -\frac1K \sum_k (1 - P_{\tilde Y(k)}(k))^\gamma \log P_{\tilde Y(k)}(k)

    Learns: its own network (`jcas.models.lwanet`, MobileNetV2; with ``--encoder tiny`` half of the channels,
    ``--encoder lwanet`` for all of them). ``gamma`` 6 is the paper's. ``final_relu=True`` ends the network in a ReLU,
    as published: logits cannot fall below 0, and with gamma 6 training easily collapses. Differs from the original:
    logits are enlarged to the labels instead of labels shrunk by maximum pooling; the optimiser is the run's.
    """

    paper = "Ni et al., ICRA 2020"
    needs = "its own network"
    network = "lwanet"

    def __init__(self, model: nn.Module, num_classes: int, *, gamma: float = 6.0, final_relu: bool = False) -> None:
        super().__init__(model, num_classes)
        if gamma < 0:
            raise ValueError(f"gamma must not be negative, got {gamma}")
        self.gamma = gamma
        self.final_relu = final_relu

    @classmethod
    def model_options(cls, encoder: str, **options: Any) -> dict[str, Any]:
        """How the network ends."""
        return {"final_relu": options.get("final_relu", False)}

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Focal loss of one head."""
        return focal_loss(logits.float().softmax(1), batch.noisy, gamma=self.gamma, weight=batch.weight)
