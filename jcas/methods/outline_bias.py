"""Classes that are drawn too wide all over the dataset lose what the images together take from them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.core.counting import core_confidence
from jcas.core.outlines import (
    QUIET_SHIFT,
    OutlineCounts,
    class_cores,
    class_offsets,
    count_outlines,
    look_groups,
    near_outlines,
    outline_thresholds,
    touching,
)
from jcas.methods.base import mean_over_processes, resized, resized_labels

_MOST_IMAGES = 128
_MOST_PIXELS = 128 * 128
_ROUNDS = 3
_FORGOTTEN = 0.1  # of a log-ratio
_LOOKS = 3
_MOST_FAILURES = 2
_LEAST_SIGHTINGS = 2


class OutlineBias(nn.Module):
    r"""Offsets b of the classes that turn a model of the labels into one of the images: :math:`p_c e^{b_c} / Z`.

    Who draws the muscle around a ventricle as an ellipse draws it too wide in every image, and so does a model of these
    labels. `jcas.core.outlines` counts over validation images, as they are predicted, which probability a class should
    need: training images will not do, their labels are learned by heart, and a window of an image is not predicted as
    the whole is. One number per class and dataset: it cannot follow the noise of one image, and no label is replaced.

    Args:
        num_classes: classes, background included.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.offset: Tensor
        self.telling: Tensor  # whether looks tell all classes apart that touch
        self.groups: Tensor  # the same number for classes that they do not
        self.register_buffer("offset", torch.zeros(num_classes))
        self.register_buffer("groups", torch.arange(num_classes))
        self.failures: Tensor  # looks that did not tell
        self.quiet: Tensor  # looks in a row that found nothing
        self.register_buffer("telling", torch.tensor(False))
        self.sightings: Tensor  # looks that found a wrong outline
        self.register_buffer("failures", torch.zeros((), dtype=torch.long))
        self.register_buffer("quiet", torch.zeros((), dtype=torch.long))
        self.register_buffer("sightings", torch.zeros((), dtype=torch.long))
        self.forget()

    def unbiased(self, probs: Tensor) -> Tensor:  # (B, C, H, W) -> (B, C, H, W)
        """Probabilities with the offsets."""
        return _shifted(probs, self.offset)

    def forget(self) -> None:
        """Start anew."""
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []  # image, probabilities, where outlines are near
        self._offered, self._stride = 0, 1

    @torch.no_grad()
    def remember(self, image: Tensor, probs: Tensor, labels: Tensor) -> None:
        """Keep a batch for `measure`; of many batches every second, fourth ... so that all parts of a dataset speak."""
        if self._offered % self._stride == 0:
            self._seen.append(_small(image, probs.detach(), labels))
        self._offered += 1
        if len(self._seen) > 1 and sum(len(images) for images, _, _ in self._seen) > _MOST_IMAGES:
            self._seen, self._stride = self._seen[::2], 2 * self._stride

    @torch.no_grad()
    def measure(self) -> None:
        """See whether looks tell classes apart and, if so, move the offsets halfway to those of the images kept.

        Halfway, because whether a shift is large enough to be believed may change from epoch to epoch; what is left of
        one that was seen only once is dropped in the end. After a `habit` was seen, a look that finds nothing changes
        nothing; one that finds something moves the offsets of all classes halfway to it. Where looks do not tell,
        offsets and quiet looks are dropped at once, and for good when looks have `failed`. Images that show hardly any
        outline change nothing. What was kept is forgotten.
        """
        counts, found = self._counted()
        self.forget()
        if not touching(counts):
            return
        self.groups.copy_(look_groups(counts))
        told = len(self.groups.unique()) == len(self.groups)
        self.failures += not told
        self.telling.fill_(told and not self.failed)
        if not bool(self.telling):  # what looks like the one class may be another that looks the same
            self.quiet.zero_()
            self.offset.zero_()
            return
        silent = not bool(outline_thresholds(counts, least_shift=QUIET_SHIFT).any())
        self.quiet.fill_(int(self.quiet) + 1 if silent else 0)
        moved = bool(found.any())
        self.sightings += moved
        if moved or not self.habit:
            self.offset.copy_((self.offset + found) / 2)
        if not moved and float(self.offset.abs().max()) < _FORGOTTEN:
            self.offset.zero_()

    @property
    def failed(self) -> bool:
        """Whether looks did not tell in two epochs, in a row or not: they are not asked again, to and fro is worse."""
        return int(self.failures) >= _MOST_FAILURES

    @property
    def habit(self) -> bool:
        """Whether wrong outlines were seen twice, in a row or not, of whichever classes.

        A young model is in doubt where labels and images disagree. One that has learned the labels by heart is not, and
        shows their habit no longer: that is no evidence against it.
        """
        return int(self.sightings) >= _LEAST_SIGHTINGS

    @property
    def right(self) -> bool:
        """Whether outlines seem right: looks tell classes apart, and three times in a row hardly any shift was seen.

        Less than `QUIET_SHIFT`: a young model does not show a habit at once. Not after a `habit` was seen.
        """
        return int(self.quiet) >= _LOOKS and not bool(self.offset.any()) and not self.habit

    def _counted(self) -> tuple[OutlineCounts, Tensor]:
        """Counts of the images kept, and the offsets that follow from them.

        In a few rounds: the surest pixels of a class that is drawn too wide are purer once it is narrower.
        """
        offset = torch.zeros_like(self.offset)
        for _ in range(_ROUNDS):
            counts = OutlineCounts.none(len(offset), offset.device)
            if self._seen:
                shifted = [_shifted(probs, offset) for _, probs, _ in self._seen]
                least = core_confidence(
                    torch.cat([probs.movedim(1, 0).flatten(1) for probs in shifted], 1),
                    torch.cat([near.flatten() for _, _, near in self._seen]),
                )
                for (image, probs, near), now in zip(self._seen, shifted, strict=True):
                    count_outlines(counts, image, probs, near, class_cores(now, near, least))
            # Every process has seen the same images; only their statistics of the training differ a little.
            counts = OutlineCounts(*(mean_over_processes(x) for x in (counts.votes, counts.cores, counts.length)))
            found = class_offsets(outline_thresholds(counts), counts).to(offset)
            if torch.equal(found, offset):
                break
            offset = found
        return counts, offset


def _shifted(probs: Tensor, offset: Tensor) -> Tensor:
    if not bool(offset.any()):
        return probs
    return (probs.clamp_min(1e-9).log() + offset.view(1, -1, 1, 1)).softmax(1)


def _small(image: Tensor, probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Image, probabilities and where outlines are near, of at most 128 x 128 pixels."""
    scale = min(1.0, math.sqrt(_MOST_PIXELS / image.shape[2:].numel()))
    size = (max(1, int(image.shape[2] * scale)), max(1, int(image.shape[3] * scale)))
    small = image if scale == 1 else functional.interpolate(image, size, mode="area")
    return small, resized(probs, size), near_outlines(resized_labels(labels, size), probs.shape[1])
