"""What a model's predictions, counted against the labels, say about the noise: N, T_C, T_A, and its kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jcas.core import (
    class_to_affinity,
    confusion_counts,
    counted_transition,
    drawn,
    from_counts,
    pair_counts,
    roughness,
)
from jcas.core.counting import CERTAINTIES, certainty, counts_by_certainty, surest_share
from jcas.core.neighbours import FARTHEST, agreement_counts, independent_from
from jcas.methods.base import mean_over_processes, summed_over_processes
from jcas.methods.shapes import count_ellipses
from jcas.schema import IGNORE

_FEWEST_SHAPES = 10
_MOST_ELLIPSES = 1 / 4  # of all shapes: up to 0.11 of cells and hearts as they are, from 0.49 on of ellipses


class NoiseCounts(nn.Module):
    """Counts of one epoch after another, and the matrices that follow from the latest.

    Flipped labels are counted where the model is surest of a class. What is wrong with drawn ones is not in such cores:
    they are counted everywhere, on validation images as soon as some were seen, because those of the training are
    drawn once and learned by heart. (Flipped ones are not learned so soon, and need as many pixels as there are.)
    Which pixels are surest is seen at the end of an epoch, so that T_C does not depend on the size of batches; T_A
    counted on its own, image by image, takes those that are surest so far.

    Args:
        num_classes: classes, background included.
        tied: T_A follows from T_C by Theorem 1; else it is counted itself.
    """

    def __init__(self, num_classes: int, *, tied: bool) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.tied = tied
        self.prior: Tensor
        self.class_transition: Tensor
        self.pair_transition: Tensor
        self.roughness: Tensor
        self.agreement: Tensor
        self.shapes: Tensor
        self.validated: Tensor
        self.register_buffer("prior", torch.full((num_classes,), 1 / num_classes))
        self.register_buffer("class_transition", torch.eye(num_classes))
        self.register_buffer("pair_transition", torch.eye(2))
        self.register_buffer("roughness", torch.zeros(2, dtype=torch.float64))  # sum over images, images
        self.register_buffer("agreement", torch.zeros(FARTHEST + 1, 2, dtype=torch.float64))  # `agreement_counts`
        self.register_buffer("shapes", torch.zeros(2, dtype=torch.float64))  # `count_ellipses`
        self.register_buffer("validated", torch.tensor(False))  # whether the matrices are those of validation images
        self.by_certainty: Tensor
        self.validation: Tensor
        self.pairs_everywhere: Tensor
        self.pairs_of_cores: Tensor
        self.pairs_of_validation: Tensor
        of_classes, of_pairs = (num_classes, num_classes), (2, 2)  # believed, observed; counted anew in every epoch
        for name, shape in (
            ("by_certainty", (CERTAINTIES, *of_classes)),
            ("validation", of_classes),
            ("pairs_everywhere", of_pairs),
            ("pairs_of_cores", of_pairs),
            ("pairs_of_validation", of_pairs),
        ):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64), persistent=False)

    def start_epoch(self) -> None:
        """Forget the counts, not what follows from them."""
        of_pairs = (self.pairs_everywhere, self.pairs_of_cores, self.pairs_of_validation)
        for counts in (self.by_certainty, self.validation, *of_pairs):
            counts.zero_()

    @property
    def everywhere(self) -> Tensor:  # (C, C)
        """Counts of all pixels of training images."""
        return self.by_certainty.sum(0)

    @property
    def cores(self) -> Tensor:  # (C, C)
        """Those of the surest quarter of each class."""
        return (surest_share(self.by_certainty)[:, :, None] * self.by_certainty).sum(0)

    @torch.no_grad()
    def add(
        self,
        probs: Tensor,  # (B, C, h, w)
        labels: Tensor,  # (B, h, w)
        weight: Tensor | None,  # (B, h, w)
    ) -> None:
        """Count predictions of training images."""
        self.by_certainty += summed_over_processes(counts_by_certainty(probs, labels, weight=weight))
        if self.tied:
            return
        sure, believed = probs.max(1)
        core = surest_share(self.by_certainty)[certainty(sure), believed] > 0  # as far as this epoch has come
        of_cores = torch.where(core, labels, IGNORE)
        for counts, counted in ((self.pairs_everywhere, labels), (self.pairs_of_cores, of_cores)):
            confusion = confusion_counts(believed, counted, self.num_classes, weight=weight)
            counts += summed_over_processes(pair_counts(confusion))

    @torch.no_grad()
    def add_validation(self, probs: Tensor, labels: Tensor, weight: Tensor | None) -> None:
        """Count predictions of validation images, which every process sees."""
        confusion = confusion_counts(probs.max(1).indices, labels, self.num_classes, weight=weight)
        self.validation += confusion.sum(0)
        self.pairs_of_validation += pair_counts(confusion)

    @torch.no_grad()
    def add_kind(self, labels: Tensor, *, everywhere_the_same: bool = False) -> None:  # (B, H, W)
        """See of which kind the labels are; ``everywhere_the_same``: every process sees these."""
        rough = roughness(labels, self.num_classes).double()
        found = torch.stack([rough.nansum(), (~rough.isnan()).sum()])
        shapes = count_ellipses(labels) if drawn(float(rough.nanmean())) else (0, 0)  # flips make a thousand pieces
        pieces = self.shapes.new_tensor(shapes)
        self.roughness += found if everywhere_the_same else summed_over_processes(found)
        self.shapes += pieces if everywhere_the_same else summed_over_processes(pieces)

    @torch.no_grad()
    def add_agreement(self, labels: Tensor) -> None:  # (B, H, W)
        """See how far apart labels must be not to repeat each other: in training, where masks may be enlarged."""
        self.agreement += summed_over_processes(agreement_counts(labels))

    @property
    def reach(self) -> int:
        """From one label to the next that does not repeat it."""
        return independent_from(self.agreement)

    @property
    def mean_roughness(self) -> float | None:
        """Over the images that show outlines; None before any was seen."""
        total, images = self.roughness.tolist()
        return total / images if images else None

    @property
    def of_drawn_labels(self) -> bool:
        """Whether the labels have turned out to be drawn rather than flipped pixel by pixel."""
        return self.mean_roughness is not None and drawn(self.mean_roughness)

    @property
    def of_ellipses(self) -> bool:
        """Whether drawn labels have turned out to be ellipses, or parts of ellipses that hide each other."""
        shapes, ellipses = self.shapes.tolist()
        return self.of_drawn_labels and shapes >= _FEWEST_SHAPES and ellipses > _MOST_ELLIPSES * shapes

    @property
    def of_flipped_labels(self) -> bool:
        """Whether they have turned out to be flipped pixel by pixel."""
        return self.mean_roughness is not None and not drawn(self.mean_roughness)

    @property
    def empty(self) -> bool:
        """Whether no training image of this epoch was counted."""
        return not bool(self.by_certainty.any())

    def believe_training(self) -> None:
        """Take the matrices from the training images, unless validation images know better."""
        if not self.of_drawn_labels:
            self._adopt(self.cores, self.pairs_of_cores)
        elif not bool(self.validated):
            self._adopt(self.everywhere, self.pairs_everywhere)

    def believe_validation(self) -> None:
        """Take the matrices of drawn labels from the validation images, if there are any."""
        counts, pairs = mean_over_processes(self.validation), mean_over_processes(self.pairs_of_validation)
        if bool(counts.any()):
            self._adopt(counts, pairs, shares=counts)
            self.validated.fill_(True)

    def _adopt(self, counts: Tensor, pairs: Tensor, *, shares: Tensor | None = None) -> None:
        believed = self.everywhere if shares is None else shares
        self.prior.copy_(believed.sum(1) / believed.sum())
        self.class_transition.copy_(counted_transition(counts))
        if self.tied:
            self.pair_transition.copy_(class_to_affinity(self.class_transition, self.prior))
        else:
            self.pair_transition.copy_(from_counts(pairs))
