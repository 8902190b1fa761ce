"""CSS: OCRNet, the Lovasz-softmax loss, and more of the images with rare classes."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import lovasz_softmax
from jcas.schema import Batch


class CSS(HeadLossMethod):
    r"""Effective segmentation in cataract surgery: optimise the Jaccard index itself and repeat rare classes.

    Pissas et al., Effective Semantic Segmentation in Cataract Surgery: What Matters Most?, MICCAI 2021.

    .. math:: L = Lovasz(P, \tilde Y) + 0.4\,Lovasz(P_{intermediate}, \tilde Y), \qquad
              r_c = \max(1, \sqrt{t / f_c})

    An image is drawn in proportion to the largest :math:`r_c` of its classes; :math:`f_c` is the share of images that
    show class c by their training labels. So pixel-wise noise, which puts every class everywhere, switches it off.

    Learns: its own network (`jcas.models.ocrnet`, ResNet-50; ``--encoder ocrnet:NAME`` for another encoder; with
    ``--encoder tiny`` that one's map at 1/4 of the side and an eighth of the channels, ``--encoder ocrnet`` for
    ResNet-50). ``repeat_threshold`` t = 0.15 and ``intermediate_weight`` 0.4 are the paper's. Differs from the
    original: an epoch has as many images as the training split, so that all methods take equally many steps;
    augmentation, optimiser and schedule are the run's; maps are enlarged by pixel areas, not by corners.
    """

    paper = "Pissas et al., MICCAI 2021"
    needs = "its own network"
    network = "ocrnet"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        *,
        repeat_threshold: float = 0.15,
        intermediate_weight: float = 0.4,
    ) -> None:
        super().__init__(model, num_classes)
        self.repeat_threshold = repeat_threshold
        self.auxiliary_weight = intermediate_weight

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Lovasz-softmax of one head."""
        return lovasz_softmax(logits.float().softmax(1), batch.noisy, weight=batch.weight)
