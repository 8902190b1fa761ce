"""Classes that are drawn too wide all over the dataset lose what the images together take from them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.core.outlines import (
    OutlineCounts,
    class_cores,
    class_offsets,
    core_confidence,
    count_outlines,
    near_outlines,
    outline_thresholds,
)
from jcas.methods.base import resized, resized_labels, summed_over_processes

_MOST_IMAGES = 128
_ROUNDS = 3
_MOST_PIXELS = 128 * 128


class OutlineBias(nn.Module):
    r"""Offsets b of the classes that turn a model of the labels into one of the images: :math:`p_c e^{b_c} / Z`.

    Who draws the muscle around a ventricle as an ellipse draws it too wide in every image, and so does a model of these
    labels. `jcas.core.outlines` counts over the last images of an epoch which probability a class should need. One
    number per class and dataset: it cannot follow the noise of one image, and no label is replaced.

    Args:
        num_classes: classes, background included.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.offset: Tensor
        self.register_buffer("offset", torch.zeros(num_classes))
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []  # image, logits, labels

    def unbiased(self, probs: Tensor) -> Tensor:  # (B, C, H, W) -> (B, C, H, W)
        """Probabilities with the offsets."""
        if not bool(self.offset.any()):
            return probs
        return (probs.clamp_min(1e-9).log() + self.offset.view(1, -1, 1, 1)).softmax(1)

    def forget(self) -> None:
        """Start an epoch."""
        self._seen.clear()

    def remember(self, image: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Keep a batch for the end of the epoch; only the last ones are kept."""
        self._seen.append((image, logits.detach(), labels))
        while sum(len(images) for images, _, _ in self._seen[1:]) >= _MOST_IMAGES:
            del self._seen[0]

    @torch.no_grad()
    def measure(self) -> None:
        """The offsets of the images kept, which are forgotten.

        In a few rounds: the surest pixels of a class that is drawn too wide are purer once it is narrower.
        """
        kept = [_small(*batch) for batch in self._seen]
        self.forget()
        self.offset.zero_()
        for _ in range(_ROUNDS):
            counts = OutlineCounts.none(len(self.offset), self.offset.device)
            if kept:
                unbiased = [self.unbiased(probs) for _, probs, _ in kept]
                least = core_confidence(
                    torch.cat([probs.movedim(1, 0).flatten(1) for probs in unbiased], 1),
                    torch.cat([near.flatten() for _, _, near in kept]),
                )
                for (image, probs, near), now in zip(kept, unbiased, strict=True):
                    count_outlines(counts, image, probs, near, class_cores(now, near, least))
            counts = OutlineCounts(*(summed_over_processes(x) for x in (counts.votes, counts.cores, counts.length)))
            found = class_offsets(outline_thresholds(counts), counts).to(self.offset)
            if torch.equal(found, self.offset):
                break
            self.offset.copy_(found)


def _small(image: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Image, probabilities and where outlines are near, of at most 128 x 128 pixels."""
    scale = min(1.0, math.sqrt(_MOST_PIXELS / image.shape[2:].numel()))
    size = (max(1, int(image.shape[2] * scale)), max(1, int(image.shape[3] * scale)))
    small = image if scale == 1 else functional.interpolate(image, size, mode="area")
    near = near_outlines(resized_labels(labels, size), logits.shape[1])
    return small, resized(logits, size).softmax(1), near
