"""OCRNet: every pixel asks the classes of the image what they look like, and is classified with their answer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from jcas.models.base import Encoder, InputNormalisation, SegmentationModel
from jcas.schema import Output

PIXEL_DIM, KEY_DIM = 512, 256
"""Channels of pixels and class centres, and of what they are compared by; the paper's."""


def _convolution(inputs: int, outputs: int, *, kernel: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def _for_centres(inputs: int, outputs: int) -> nn.Sequential:
    """A 1x1 convolution over class centres: too few values for BatchNorm, so group normalisation."""
    return nn.Sequential(nn.Conv1d(inputs, outputs, 1, bias=False), nn.GroupNorm(1, outputs), nn.ReLU())


class ObjectContext(nn.Module):
    """Attention from pixels to class centres (Yuan et al., Object-Contextual Representations, ECCV 2020)."""

    def __init__(self, *, pixel_dim: int = PIXEL_DIM, key_dim: int = KEY_DIM) -> None:
        super().__init__()
        self.query = nn.Sequential(_convolution(pixel_dim, key_dim), _convolution(key_dim, key_dim))
        self.key = nn.Sequential(_for_centres(pixel_dim, key_dim), _for_centres(key_dim, key_dim))
        self.value = _for_centres(pixel_dim, key_dim)
        self.widen = _convolution(key_dim, pixel_dim)
        self.mix = _convolution(2 * pixel_dim, pixel_dim)

    def forward(self, pixels: Tensor, logits: Tensor) -> Tensor:
        """Pixels (B, d, h, w) and coarse logits (B, C, h, w) on one grid -> (B, d, h, w)."""
        shares = logits.flatten(2).softmax(2)  # (B, C, n): where in the image each class lies
        centres = pixels.flatten(2) @ shares.transpose(1, 2)  # (B, d, C)
        query = self.query(pixels).flatten(2)  # (B, k, n)
        similarity = query.transpose(1, 2) @ self.key(centres) / math.sqrt(query.shape[1])  # (B, n, C)
        context = self.value(centres) @ similarity.softmax(2).transpose(1, 2)  # (B, k, n)
        context = self.widen(context.unflatten(2, pixels.shape[2:]))
        return self.mix(torch.cat([context, pixels], 1))


class OCRNet(SegmentationModel):
    """OCRNet on an encoder; ResNet-50 with output stride 8 in CSS (Pissas et al., MICCAI 2021).

    The auxiliary output holds the intermediate logits that gather the class centres, read from the map before the last.
    Convolutions over class centres have group instead of batch normalisation, so that a batch of one image works.

    Args:
        encoder: the trunk; its last two maps are on one grid, or the coarse logits are resized.
        num_classes: classes, background included.
        channels: channels of the images; 1 is repeated where the encoder takes 3.
        auxiliary: hand out the intermediate logits too.
        pixel_dim: channels d of pixels and class centres.
        key_dim: channels k in which pixels ask and centres answer.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        num_classes: int,
        channels: int,
        auxiliary: bool = True,
        pixel_dim: int = PIXEL_DIM,
        key_dim: int = KEY_DIM,
    ) -> None:
        super().__init__()
        self.auxiliary = auxiliary
        before, _, last = encoder.channels
        self.normalise = InputNormalisation(channels=channels, mean=encoder.mean, std=encoder.std, bgr=encoder.bgr)
        self.encoder = encoder
        self.intermediate = nn.Sequential(
            _convolution(before, pixel_dim, kernel=3), nn.Conv2d(pixel_dim, num_classes, 1)
        )
        self.pixels = _convolution(last, pixel_dim, kernel=3)
        self.context = ObjectContext(pixel_dim=pixel_dim, key_dim=key_dim)
        self.classifier = nn.Conv2d(pixel_dim, num_classes, 1)

    def forward(self, image: Tensor) -> Output:
        """Logits of ``image`` (B, channels, H, W), and the intermediate ones."""
        maps = self.encoder(self.normalise(image))
        coarse, pixels = self.intermediate(maps.auxiliary), self.pixels(maps.main)
        on_grid = nn.functional.interpolate(coarse, size=pixels.shape[2:], mode="bilinear", align_corners=False)
        logits = self.classifier(self.context(pixels, on_grid))
        return Output(logits=logits, auxiliary=Output(logits=coarse) if self.auxiliary else None)
