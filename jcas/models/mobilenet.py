"""MobileNetV2 in torchvision's parameter names."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.models.base import IMAGENET_MEAN, IMAGENET_STD, Encoder, Maps
from jcas.models.weights import load_weights

IMAGENET_URL = "https://download.pytorch.org/models/mobilenet_v2-b0353104.pth"

_STAGES = (  # expansion, output channels, blocks, stride
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_READ_AFTER = (3, 6, 13, 17)  # the last blocks at 1/4, 1/8, 1/16 and 1/32 of the side
_CLASSIFIER = ("features.18.", "classifier.")


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Widen (1x1), filter each channel (3x3), narrow (1x1, linear); a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        widen = [_convolution(inputs, width, kernel=1)] if expansion != 1 else []
        self.shortcut = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *widen,
            _convolution(width, width, kernel=3, stride=stride, groups=width),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) -> (B, outputs, h / stride, w / stride)."""
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(Encoder):
    """MobileNetV2 (Sandler et al., CVPR 2018) without its last 1x1 convolution; 1.8 M parameters.

    Args:
        in_channels: channels of the normalised image; pretrained files need 3.
        width: share of the paper's channels in every layer (its "width multiplier"); pretrained files need 1.
    """

    def __init__(self, *, in_channels: int = 3, width: float = 1.0) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.mean, self.std = IMAGENET_MEAN, IMAGENET_STD
        if in_channels != 3:
            self.mean, self.std = (0.5,) * in_channels, (0.25,) * in_channels
        inputs, *outputs = (int(channels * width) for channels in (32, *(stage[1] for stage in _STAGES)))
        self.widths = outputs[1], outputs[2], outputs[4], outputs[6]
        self.channels = self.widths[2], self.widths[3], self.widths[3]
        blocks: list[nn.Module] = [_convolution(in_channels, inputs, kernel=3, stride=2)]
        for (expansion, _, depth, stride), output in zip(_STAGES, outputs, strict=True):
            for index in range(depth):
                first = stride if index == 0 else 1
                blocks.append(InvertedResidual(inputs, output, stride=first, expansion=expansion))
                inputs = output
        self.features = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, image: Tensor) -> Maps:
        """Maps at 1/16 (auxiliary) and 1/32 of the side."""
        _, _, auxiliary, main = self.stages(image)
        return Maps(auxiliary, main, main)

    def stages(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maps at 1/4, 1/8, 1/16 and 1/32 of the side, of `widths` channels."""
        x, found = image, []
        for index, block in enumerate(self.features):
            x = block(x)
            if index in _READ_AFTER:
                found.append(x)
        quarter, eighth, sixteenth, last = found
        return quarter, eighth, sixteenth, last

    def load_pretrained(self, source: bool | str) -> None:
        """Fill from ImageNet's published weights (``True``: downloads once) or from a file of that layout."""
        if self.in_channels != 3:
            raise ValueError(f"pretrained mobilenet takes grey or RGB images, got channels={self.in_channels}")
        load_weights(self, IMAGENET_URL if source is True else str(source), ignore=_CLASSIFIER)
