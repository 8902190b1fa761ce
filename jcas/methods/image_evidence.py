"""Who speaks for the image, and what it says of drawn labels and of predictions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from jcas.core import (
    confusion_counts,
    drawn,
    estimated_jaccard,
    refined_by_appearance,
    repaired,
    roughness,
    unchallenged,
)
from jcas.core.counting import invertible
from jcas.methods.base import mean_over_processes, summed_over_processes
from jcas.methods.outline_bias import OutlineBias
from jcas.methods.witness import ColourWitness
from jcas.schema import IGNORE


class ImageEvidence(nn.Module):
    """The witness of colours, and looks: what classes look like nearby, and whether outlines are where they should be.

    Args:
        num_classes: classes, background included.
        channels: of the images that a witness sees; None: there is no witness.
        screening: whether labels are set aside.
        refinement: whether predictions are refined.
        moves_outlines: whether offsets of classes drawn too wide or too narrow are used; they are counted anyway.
    """

    def __init__(
        self, num_classes: int, *, channels: int | None, screening: bool, refinement: bool, moves_outlines: bool
    ) -> None:
        super().__init__()
        self.screening = screening
        self.refinement = refinement
        self.moves_outlines = moves_outlines
        self.witness = None if channels is None else ColourWitness(channels, num_classes)
        self.outlines = OutlineBias(num_classes)
        self.judged: Tensor  # pixels by label, and how many of them were set aside; counted anew in every epoch
        self.register_buffer("judged", torch.zeros(num_classes, 2, dtype=torch.float64))
        self.gain: Tensor  # of overlap by refinement, as validation labels estimate it where labels are flipped
        self.register_buffer("gain", torch.zeros((), dtype=torch.float64))
        self.compared: Tensor  # predictions as they are, refined; each by believed class and label
        self.kind: Tensor  # roughness of the labels that they are compared with: sum over images, images
        shape = (2, num_classes, num_classes)
        self.register_buffer("compared", torch.zeros(shape, dtype=torch.float64), persistent=False)
        self.register_buffer("kind", torch.zeros(2, dtype=torch.float64), persistent=False)

    def start_epoch(self) -> None:
        """Start its counts."""
        for counts in (self.judged, self.compared, self.kind):
            counts.zero_()
        if self.witness is not None:
            self.witness.start_epoch()
        self.outlines.forget()

    def end_epoch(self, *, listened: bool) -> None:
        """Learn from its counts; ``listened``: whether its word counted in this epoch."""
        if self.witness is not None:
            self.witness.end_epoch(listened=listened)

    @property
    def speaker(self) -> Literal["witness", "background", "looks"]:
        """Whose word on drawn labels counts.

        A witness that is heard; where none is and looks do not tell all classes apart that touch, what colours say
        against the background; else looks.
        """
        if self.witness is None:
            return "looks"
        if self.witness.heard:
            return "witness"
        in_vain = int(self.outlines.failures) > 0 and not bool(self.outlines.telling)
        return "background" if in_vain and bool(self.witness.distinct.any()) else "looks"

    @property
    def yardstick(self) -> str:
        """Whose word on drawn labels and predictions counts, of which classes, and whether outlines are moved."""
        speaker, about = self.speaker, ""
        if speaker == "looks":
            moved = self.moves_outlines and bool(self.outlines.offset.any())
            about = f"{bool(self.outlines.telling)} {self.outlines.groups.tolist()} {moved}"
        elif self.witness is not None and speaker == "background":
            about = str(self.witness.distinct.tolist())
        return f"{speaker} {about}"

    @property
    def no_habit_seen(self) -> bool:
        """Whether it has looked for what is wrong with drawn labels everywhere, and found nothing.

        A witness that is heard finds more than outlines show.
        """
        return self.outlines.right and self.speaker != "witness"

    @property
    def asks_outlines(self) -> bool:
        """Whether outlines of drawn labels are still to be counted: no witness speaks, and looks have not failed."""
        return self.speaker != "witness" and not self.outlines.failed

    def unbiased(self, probs: Tensor) -> Tensor:  # (B, C, H, W) -> (B, C, H, W)
        """Without the labels' habit of too wide outlines, where no witness is heard."""
        if not self.moves_outlines or self.speaker == "witness":
            return probs
        return self.outlines.unbiased(probs)

    @torch.no_grad()
    def standing(self, image: Tensor, labels: Tensor, probs: Tensor) -> Tensor:  # (B, H, W)
        """The drawn labels that nobody objects to; the others become 255 = ignore."""
        if not self.screening:
            return labels
        kept = self._unopposed(image, labels, probs)
        if self.training:
            counted = [
                torch.bincount(maps[maps != IGNORE], minlength=len(self.judged))
                for maps in (labels, labels[kept == IGNORE])
            ]
            self.judged += summed_over_processes(torch.stack(counted, 1).double())
        return kept

    def _unopposed(self, image: Tensor, labels: Tensor, probs: Tensor) -> Tensor:  # (B, H, W)
        if self.witness is not None and self.speaker == "witness":
            return self.witness.confirmed(image, labels)
        if self.witness is not None and self.speaker == "background":
            return self.witness.unlike_background(image, labels)
        return unchallenged(labels, repaired(image, labels, self.unbiased(probs)))

    @torch.no_grad()
    def compare(self, image: Tensor, probs: Tensor, labels: Tensor, weight: Tensor | None) -> None:
        """Count predictions of validation images, as they are and refined by appearance, against their labels."""
        if not self.refinement:
            return
        rough = roughness(labels, len(self.judged)).double()
        self.kind += torch.stack([rough.nansum(), (~rough.isnan()).sum()])
        for counts, found in zip(self.compared, (probs, refined_by_appearance(image, probs)), strict=True):
            counts += confusion_counts(found.max(1).indices, labels, len(counts), weight=weight).sum(0)

    def weigh(self, transition: Tensor) -> None:
        """See whether refinement pays by what was compared: flipped labels judge fairly (`estimated_jaccard`).

        The gain goes halfway to what an epoch shows, because labels are few and flips many. Validation labels that were
        not flipped, as where somebody has checked them, are taken at their word.
        """
        counts, (rough, images) = mean_over_processes(self.compared), self.kind.tolist()
        if not bool(counts.any()):
            return
        noise = transition.new_ones(len(transition)).diag() if drawn(rough / max(images, 1)) else transition
        if invertible(noise):  # else labels tell no classes apart and judge nobody
            plain, refined = estimated_jaccard(counts, noise).tolist()
            self.gain.copy_((self.gain + refined - plain) / 2)

    @property
    def pays(self) -> bool:
        """Whether validation labels, where labels are flipped, speak for refinement by appearance."""
        return bool(self.gain > 0)

    def coloured(self, image: Tensor, probs: Tensor) -> Tensor:  # (B, C, H, W)
        """Predictions with the word of a witness that is heard, at half its strength.

        Of an image or a window as large as those it has learned from: it sees colours among those around them.
        """
        if not self.refinement or self.witness is None or self.speaker != "witness":
            return probs
        return (probs.clamp_min(1e-9).log() + self.witness(image).log_softmax(1) / 2).softmax(1)

    def refined(self, image: Tensor, probs: Tensor, *, drawn: bool) -> Tensor:  # (B, C, H, W)
        """`coloured` predictions with what else the image says, at half its strength: they have seen it already.

        Of labels that were not ``drawn`` a witness has learned nothing; looks speak if validation labels show a gain.
        """
        if not self.refinement or (drawn and self.speaker == "witness"):
            return probs
        if self.witness is not None and drawn and self.speaker == "background":
            return self.witness.weighed(image, probs)
        if drawn and self._groups_refine:
            return refined_by_appearance(image, probs, groups=self.outlines.groups)
        return refined_by_appearance(image, probs) if bool(self.outlines.telling if drawn else self.pays) else probs

    @property
    def _groups_refine(self) -> bool:
        """Whether looks that do not tell all classes apart still tell some."""
        return 1 < len(self.outlines.groups.unique()) < len(self.outlines.groups)

    def findings(self, *, drawn: bool) -> dict[str, str]:
        """What refines predictions, what moves outlines, and the share of labels set aside, from class 0 on."""
        by_looks = "refined by appearance" if bool(self.outlines.telling if drawn else self.pays) else "not refined"
        if drawn and self._groups_refine:
            by_looks = "refined by appearance, not between classes that look alike"
        words = {"witness": "refined by colour", "background": "refined by colour against background"}
        said = words.get(self.speaker, by_looks) if drawn else by_looks
        found = {"predictions": said if self.refinement else "not refined"}
        moved = self.moves_outlines and bool(self.outlines.offset.any())
        if moved and not (drawn and self.speaker == "witness"):
            found["outlines"] = "moved by " + " ".join(f"{value:+.2f}" for value in self.outlines.offset.tolist())
        if drawn and self.witness is not None and bool(self.witness.silenced):
            found["colours"] = "no longer heard"
        elif drawn and self.witness is not None and bool(self.witness.known.all()) and self.witness.denies:
            found["colours"] = (
                f"not heard, {float(self.witness.denied):.0%} of the cores of objects look like background"
            )
        if drawn and bool(self.judged.any()):
            shares = self.judged[:, 1] / self.judged[:, 0].clamp_min(1)
            found["labels set aside"] = " ".join(f"{share:.0%}" for share in shares.tolist())
        return found
