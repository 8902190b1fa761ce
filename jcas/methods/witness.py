"""A witness that sees the colour of a pixel and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.core import confusion_counts
from jcas.methods.base import summed_over_processes
from jcas.schema import IGNORE

WIDTH = 24
_MOST_PIXELS = 64 * 64
_LEAST_INFORMED = 1 / 4  # of 8 sets of labels: 0.33 to 0.4 with ellipses where colours tell; 0 to 0.14 where not


class ColourWitness(nn.Module):
    r"""Names the class of a pixel from its colour among the colours of its image: :math:`V(c \mid I_i, I)`.

    Two 1x1 convolutions with instance normalisation. It sees neither place nor shape nor neighbours, so it cannot
    learn where somebody drew an outline or how far from a nucleus a model of another laboratory still believes in
    cytoplasm: of all pixels that look alike it can only learn what most of them are called.

    Args:
        channels: channels of the images.
        num_classes: classes, background included.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()

        def layer(inputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inputs, WIDTH, 1, bias=False), nn.GroupNorm(WIDTH, WIDTH), nn.ReLU(True))

        self.layers = nn.Sequential(layer(channels), layer(WIDTH), nn.Conv2d(WIDTH, num_classes, 1))
        self.counts: Tensor
        self.known: Tensor
        self.register_buffer("counts", torch.zeros(num_classes, num_classes, dtype=torch.float64))  # named, labelled
        self.register_buffer("known", torch.zeros(num_classes, dtype=torch.bool))

    def forward(self, image: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, C, H, W)
        """Logits of each pixel."""
        logits: Tensor = self.layers(image)
        return logits

    def lesson(self, image: Tensor, labels: Tensor, taught: Tensor) -> Tensor:
        """Cross-entropy with the classes ``taught`` (B, H, W); what it says is counted against the ``labels``."""
        said, labels, taught = self(thinned(image)), thinned(labels), thinned(taught)
        with torch.no_grad():
            named = confusion_counts(said.max(1).indices, labels, self.counts.shape[0]).sum(0)
            self.counts += summed_over_processes(named)
        total = functional.cross_entropy(said, taught, ignore_index=IGNORE, reduction="sum")
        return total / (taught != IGNORE).sum().clamp_min(1)

    def start_epoch(self) -> None:
        """Forget the counts, not what follows from them."""
        self.counts.zero_()

    def end_epoch(self) -> None:
        """Learn from the counts which classes it knows; an epoch without lessons changes nothing."""
        if bool(self.counts.any()):
            self.known.copy_(known_classes(self.counts))

    @property
    def heard(self) -> bool:
        """Whether it knows all classes: who takes a wrist for a shaft may not object to either."""
        return bool(self.known.all())

    def confirmed(self, image: Tensor, labels: Tensor) -> Tensor:  # (B, H, W)
        """The labels that it would give, too; the others become 255 = ignore."""
        return torch.where(self(image).max(1).indices == labels, labels, IGNORE)


def thinned(maps: Tensor) -> Tensor:  # (..., H, W) -> (..., h, w)
    """Every k-th pixel of every k-th row, at most about 64 x 64: enough to learn colours from."""
    step = 1
    while maps[..., ::step, ::step].shape[-2:].numel() > _MOST_PIXELS:
        step += 1
    return maps[..., ::step, ::step]


def known_classes(counts: Tensor) -> Tensor:  # (C, C) pixels by name and label -> (C,) of bool
    r"""The classes that colour tells: named where they are labelled much more often than elsewhere.

    .. math:: P(\text{named } c \mid \text{labelled } c) - P(\text{named } c \mid \text{labelled otherwise}) > 1/4

    Somebody who calls every pixel background names all of the background and knows nothing about it. A class that
    nobody labels needs no knowing.

    >>> known_classes(torch.tensor([[90.0, 8.0], [0.0, 2.0]]))
    tensor([False, False])
    >>> known_classes(torch.tensor([[85.0, 2.0], [5.0, 8.0]]))
    tensor([True, True])
    """
    both, labelled, named = counts.diagonal(), counts.sum(0), counts.sum(1)
    elsewhere = (named - both) / (labelled.sum() - labelled).clamp_min(1)
    return (both / labelled.clamp_min(1) - elsewhere > _LEAST_INFORMED) | (labelled == 0)
