"""VolMin: learn the class transition matrix with the smallest volume that explains the noisy labels."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.core import TransitionMatrix, volume
from jcas.methods.base import AUXILIARY_WEIGHT, Method, class_loss
from jcas.schema import Batch


class VolMin(Method):
    r"""Volume minimisation: forward correction by a learned matrix, kept as large in volume loss as the labels allow.

    Li et al., Provably End-to-end Label-noise Learning without Anchor Points, ICML 2021.

    .. math:: L = L^C_{LC}(P, \tilde Y, T_C) + \lambda \log|\det T_C|

    Learns: the model and T_C (C x C), row-normalised I + sigmoid(w). Both heads share T_C.
    ``volume_weight``: 1e-4 in the paper (classification); 0.5 in JCAS's comparison, where on other data the matrix
    shrinks until classes swap. w starts at -2 (there: init 2) and learns at the run's ``matrix_learning_rate``, by
    default the original's 1e-2. Differs from the original: probabilities are floored at 1e-10 before the logarithm.
    """

    paper = "Li et al., ICML 2021"

    def __init__(self, model: nn.Module, num_classes: int, *, volume_weight: float = 1e-4) -> None:
        super().__init__(model, num_classes)
        self.volume_weight = volume_weight
        self.class_matrix = TransitionMatrix(num_classes)

    def noise(self) -> Tensor:
        """The learned matrix."""
        return self.class_matrix()

    def matrices(self) -> dict[str, Tensor]:
        """The learned class transition matrix."""
        return {"class_transition": self.class_matrix()}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Corrected cross-entropy of both heads plus the weighted log volume."""
        output, transition = self.model(batch.image), self.class_matrix()
        parts = {"class_loss": class_loss(output.logits, batch, transition), "volume": volume(transition)}
        loss = parts["class_loss"] + self.volume_weight * parts["volume"]
        if output.auxiliary is not None:
            parts["auxiliary_loss"] = class_loss(output.auxiliary.logits, batch, transition)
            loss = loss + AUXILIARY_WEIGHT * parts["auxiliary_loss"]
        return {"loss": loss, **parts}
