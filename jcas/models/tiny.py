"""A small encoder-decoder made for one CPU core, trained from scratch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from jcas.models.base import Encoder, Maps

WIDTHS = (16, 32, 64, 96)
"""Channels at strides 2, 4, 8 and 16."""


def _norm(channels: int) -> nn.GroupNorm:
    """Instance normalisation: one group per channel, so a batch of one and a map of one pixel are fine."""
    return nn.GroupNorm(channels, channels)


def _conv(inputs: int, outputs: int, *, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), _norm(outputs), nn.ReLU(inplace=True)
    )


class ResidualBlock(nn.Module):
    """Two normalised 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int, *, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False)
        self.norm1 = _norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False)
        self.norm2 = _norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, h, w) -> the same shape."""
        inner = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(x + self.norm2(self.conv2(inner)), inplace=True)


class Fusion(nn.Module):
    """Bring a coarse map to the grid and width of a finer one, add the two, and mix by a 3x3 convolution.

    Adding costs a third of the multiplications of concatenating; at equal training time it segments as well.
    """

    def __init__(self, coarse: int, fine: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(coarse, fine, 1, bias=False)
        self.mix = _conv(fine, fine)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        """(B, coarse, h, w), (B, fine, H, W) -> (B, fine, H, W)."""
        raised = functional.interpolate(self.project(coarse), fine.shape[-2:], mode="bilinear", align_corners=False)
        return self.mix(raised + fine)


class Tiny(Encoder):
    """Four strided stages down to 1/16, a dilated one for context, and three fusions back up to 1/2.

    0.56 M parameters. The auxiliary map has 1/8, the affinity map 1/4 and the main map 1/2 of the image's side: thin
    structures of small images survive, and affinities stay affordable. Measured on cardiac MRI (ACDC, 641 slices of
    128 x 128, batch 4, AdamW 2e-3, five minutes of one core, one seed): mean Jaccard 68.0 with the main map at 1/2
    and 65.8 at 1/4. Instance normalisation, because group normalisation stayed on "all background" far longer.

    Args:
        in_channels: channels of the images.
        fine: False ends at 1/4, whose map is the main one too: for heads that compute much at every pixel.
    """

    head_dilations = ()

    def __init__(self, *, in_channels: int, fine: bool = True) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.mean, self.std = (0.5,) * in_channels, (0.25,) * in_channels
        first, second, third, fourth = WIDTHS
        self.channels = (third, second, first if fine else second)
        self.stage1 = _conv(in_channels, first, stride=2)
        self.stage2 = nn.Sequential(_conv(first, second, stride=2), ResidualBlock(second))
        self.stage3 = nn.Sequential(_conv(second, third, stride=2), ResidualBlock(third))
        self.stage4 = nn.Sequential(
            _conv(third, fourth, stride=2), ResidualBlock(fourth), ResidualBlock(fourth, dilation=2)
        )
        self.fusion3 = Fusion(fourth, third)
        self.fusion2 = Fusion(third, second)
        self.fusion1 = Fusion(second, first) if fine else None

    def forward(self, image: Tensor) -> Maps:
        """Decoder maps at 1/8 (auxiliary), 1/4 (affinity) and 1/2 (main) of the image's side."""
        half = self.stage1(image)
        quarter = self.stage2(half)
        eighth = self.stage3(quarter)
        auxiliary = self.fusion3(self.stage4(eighth), eighth)
        affinity = self.fusion2(auxiliary, quarter)
        return Maps(auxiliary, affinity, affinity if self.fusion1 is None else self.fusion1(affinity, half))
