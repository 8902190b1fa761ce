"""What every model and every encoder promises."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.schema import Output

MIN_SIZE = 32
"""Smallest image side: below it the coarsest maps shrink to one pixel and normalisation has nothing to measure."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class InputNormalisation(nn.Module):
    """Turn images of 0..1 into what an encoder expects, so that callers never need to know.

    A grey image that meets an encoder of three channels is repeated. ``bgr=True`` reverses the channel order, as
    networks converted from Caffe expect.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, *, channels: int, mean: tuple[float, ...], std: tuple[float, ...], bgr: bool = False) -> None:
        super().__init__()
        self.channels = channels
        self.bgr = bgr
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Normalise ``image`` (B, channels, H, W) of 0..1; the result has as many channels as ``mean``."""
        if image.ndim != 4 or image.shape[1] != self.channels:
            raise ValueError(f"this model takes images (B, {self.channels}, H, W), got shape {tuple(image.shape)}")
        if min(image.shape[-2:]) < MIN_SIZE:
            got = " x ".join(map(str, image.shape[-2:]))
            raise ValueError(
                f"networks need at least {MIN_SIZE} x {MIN_SIZE} pixels, got {got}: enlarge images by --size"
            )
        if self.bgr:
            image = image.flip(1)
        return (image - self.mean) / self.std


def padded(image: Tensor, *, multiple: int, smallest: int) -> Tensor:  # (B, c, H, W) -> (B, c, H + a, W + b)
    """The image with its last row and column repeated until both sides are multiples, and not too small."""
    height, width = (max(-(-side // multiple) * multiple, smallest) for side in image.shape[-2:])
    below, right = height - image.shape[-2], width - image.shape[-1]
    return functional.pad(image, (0, right, 0, below), mode="replicate") if below or right else image


class Maps(NamedTuple):
    """What an encoder hands to the heads; in a plain backbone ``affinity`` is ``main``."""

    auxiliary: Tensor  # (B, c0, h0, w0) the stage before the last
    affinity: Tensor  # (B, c1, h1, w1) where pixel features are read; coarse, as affinity costs O((h1 w1)^2)
    main: Tensor  # (B, c2, h2, w2) where the classes are read


class Encoder(nn.Module):
    """A network trunk: normalised image -> :class:`Maps`.

    Attributes:
        channels: channels of the three maps.
        head_dilations: dilations of the heads that suit the grid of the maps; none: a plain 3x3 convolution.
        in_channels: channels of the normalised image.
        mean: what to subtract from an image of 0..1, one number per input channel.
        std: what to divide it by.
        bgr: whether the channels come in reverse order.
    """

    channels: tuple[int, int, int]
    head_dilations: tuple[int, ...] = (6, 12, 18, 24)
    in_channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    bgr: bool = False

    def forward(self, image: Tensor) -> Maps:
        """Maps of a normalised image (B, in_channels, H, W)."""
        raise NotImplementedError

    def load_pretrained(self, source: bool | str) -> None:
        """Fill from published weights (``True``) or from a file."""
        raise ValueError(f"{type(self).__name__.lower()} has no pretrained weights, got pretrained={source!r}")


class SegmentationModel(nn.Module):
    """Image (B, channels, H, W) of 0..1 -> :class:`~jcas.schema.Output` on the model's own grid.

    ``encoder`` holds what pretrained files can fill; everything else counts as heads, so that an optimiser can give
    the two groups different learning rates.
    """

    encoder: nn.Module
    pretrained: bool = False  # whether the encoder was filled from a file

    def forward(self, image: Tensor) -> Output:
        """Coarse logits, features and the auxiliary head's output for ``image``."""
        raise NotImplementedError
