"""RAUNet: its own network and a loss of cross-entropy and the logarithm of Dice."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import one_hot, pixel_cross_entropy, trust, trusted_mean
from jcas.schema import Batch


def log_dice_loss(probs: Tensor, noisy: Tensor, *, weight: Tensor | None = None) -> Tensor:  # ()
    r"""Minus the logarithm of each class's Dice over the batch, summed over the classes present.

    .. math:: -\sum_c \log \frac{2 \sum_k P_c Y_c}{\sum_k P_c + Y_c}
    """
    share = trust(noisy, weight)[:, None]
    truth = one_hot(noisy, probs.shape[1]) * share
    overlap = (probs * truth).sum((0, 2, 3))
    size = (probs * share + truth).sum((0, 2, 3))
    present = truth.sum((0, 2, 3)) > 0
    dice = (2 * overlap + 1e-15) / (size + 1e-15)
    return -dice.where(present, 1).log().sum()


class RAUNetMethod(HeadLossMethod):
    r"""RAUNet with its loss CEL-Dice, which weighs small classes by a logarithm; knows nothing of noise.

    Ni et al., RAUNet: Residual Attention U-Net for Semantic Segmentation of Cataract Surgical Instruments, ICONIP 2019.

    .. math:: L = 0.8\,CE - 0.2 \sum_c \log Dice_c

    Learns: its own network (`jcas.models.raunet`, ResNet-34; with ``--encoder tiny`` a quarter of the channels,
    ``--encoder raunet`` for all of them). ``dice_weight`` 0.2 is the paper's. Differs from the original: absent classes
    add nothing (there the logarithm of almost 0), the optimiser is the run's, and neither images nor labels are shrunk
    by maximum pooling.
    """

    paper = "Ni et al., ICONIP 2019"
    needs = "its own network"
    network = "raunet"

    def __init__(self, model: nn.Module, num_classes: int, *, dice_weight: float = 0.2) -> None:
        super().__init__(model, num_classes)
        if not 0 <= dice_weight <= 1:
            raise ValueError(f"dice_weight must lie in [0, 1], got {dice_weight}")
        self.dice_weight = dice_weight

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """CEL-Dice of one head."""
        entropy = trusted_mean(pixel_cross_entropy(logits, batch.noisy), trust(batch.noisy, batch.weight))
        dice = log_dice_loss(logits.float().softmax(1), batch.noisy, weight=batch.weight)
        return (1 - self.dice_weight) * entropy + self.dice_weight * dice
