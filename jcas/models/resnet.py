"""ResNet-18/34/50/101 with a dilated tail (output stride 8), in torchvision's parameter names."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from jcas.models.base import IMAGENET_MEAN, IMAGENET_STD, Encoder, Maps
from jcas.models.weights import load_weights

BLOCKS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
}
IMAGENET_URLS = {
    "resnet18": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
    "resnet34": "https://download.pytorch.org/models/resnet34-b627a593.pth",
    "resnet50": "https://download.pytorch.org/models/resnet50-0676ba61.pth",
    "resnet101": "https://download.pytorch.org/models/resnet101-63fe2227.pth",
}
_CLASSIFIERS = ("fc.", "layer5.")  # ImageNet's, and the one of the released DeepLab file
_CAFFE = (128 / 255,) * 3


def _conv3x3(inputs: int, outputs: int, *, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (ResNet-18 and -34)."""

    expansion = 1

    def __init__(
        self, inputs: int, width: int, *, stride: int, dilation: int, downsample: nn.Module | None, released: bool
    ) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, width, stride=stride, dilation=dilation)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width, dilation=dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) -> (B, width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        return functional.relu(self.bn2(self.conv2(x)) + shortcut, inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions and a shortcut (ResNet-50 and -101).

    The stride sits on the 3x3 convolution (torchvision, "v1.5"); ``released=True`` puts it on the first 1x1.
    """

    expansion = 4

    def __init__(
        self, inputs: int, width: int, *, stride: int, dilation: int, downsample: nn.Module | None, released: bool
    ) -> None:
        super().__init__()
        first, second = (stride, 1) if released else (1, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width, stride=second, dilation=dilation)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) -> (B, 4 width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        x = functional.relu(self.bn2(self.conv2(x)), inplace=True)
        return functional.relu(self.bn3(self.conv3(x)) + shortcut, inplace=True)


class ResNet(Encoder):
    """Deep residual network (He et al., CVPR 2016) whose last two stages dilate instead of striding.

    Layer 3 has dilation 2, layer 4 dilation 4 (Chen et al., DeepLab, TPAMI 2018), so the maps keep 1/8 of the
    image's side. Returns the maps of layers 3 and 4.

    Args:
        name: one of ``BLOCKS``.
        in_channels: channels of the normalised image; pretrained files need 3.
        released: as the network that JCAS released: stride on the 1x1 convolutions, max-pooling that rounds sizes up
            (256 x 320 -> 33 x 41), images in BGR order scaled by (x - 128) / 128.
        freeze_bn_affine: keep the scale and shift of all BatchNorms fixed; their running statistics still move.
        dilated: False strides in layers 3 and 4 (1/16 and 1/32 of the side), as for ImageNet.
        width: channels of the stem; pretrained files need 64.
    """

    def __init__(
        self,
        name: str,
        *,
        in_channels: int = 3,
        released: bool = False,
        freeze_bn_affine: bool = False,
        dilated: bool = True,
        width: int = 64,
    ) -> None:
        super().__init__()
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck if name in ("resnet50", "resnet101") else BasicBlock
        depths = BLOCKS[name]
        self.name = name
        self.in_channels = in_channels
        self.released = released
        self.bgr = released and in_channels == 3
        self.mean, self.std = (_CAFFE, _CAFFE) if released else (IMAGENET_MEAN, IMAGENET_STD)
        if in_channels != 3:
            self.mean, self.std = (0.5,) * in_channels, (0.25,) * in_channels
        wide = width * block.expansion
        self.channels = (4 * wide, 8 * wide, 8 * wide)

        self.conv1 = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(block, width, width, depths[0], stride=1, dilation=1, released=released)
        self.layer2 = _stage(block, wide, 2 * width, depths[1], stride=2, dilation=1, released=released)
        stride, third, fourth = (1, 2, 4) if dilated else (2, 1, 1)
        self.layer3 = _stage(block, 2 * wide, 4 * width, depths[2], stride=stride, dilation=third, released=released)
        self.layer4 = _stage(block, 4 * wide, 8 * width, depths[3], stride=stride, dilation=fourth, released=released)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d) and freeze_bn_affine:
                module.requires_grad_(False)

    def forward(self, image: Tensor) -> Maps:
        """Maps of layer 3 (auxiliary) and layer 4, about (H / 8, W / 8)."""
        _, _, auxiliary, main = self.stages(image)
        return Maps(auxiliary, main, main)

    def stages(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maps of all four layers."""
        x = functional.relu(self.bn1(self.conv1(image)), inplace=True)
        x = functional.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=self.released)
        first = self.layer1(x)
        second = self.layer2(first)
        third = self.layer3(second)
        return first, second, third, self.layer4(third)

    def load_pretrained(self, source: bool | str) -> None:
        """Fill from ImageNet's published weights (``True``: downloads once) or from a file of that layout."""
        if self.in_channels != 3:
            raise ValueError(f"pretrained {self.name} takes grey or RGB images, got channels={self.in_channels}")
        load_weights(self, IMAGENET_URLS[self.name] if source is True else str(source), ignore=_CLASSIFIERS)


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    inputs: int,
    width: int,
    depth: int,
    *,
    stride: int,
    dilation: int,
    released: bool,
) -> nn.Sequential:
    outputs = width * block.expansion
    downsample: nn.Module | None = None
    if stride != 1 or inputs != outputs:
        downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    first = block(inputs, width, stride=stride, dilation=dilation, downsample=downsample, released=released)
    rest = [
        block(outputs, width, stride=1, dilation=dilation, downsample=None, released=released) for _ in range(depth - 1)
    ]
    return nn.Sequential(first, *rest)
