"""LWANet: MobileNetV2 and a light decoder whose attention weighs coarse and fine channels against each other."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.models.base import InputNormalisation, SegmentationModel, padded
from jcas.models.mobilenet import MobileNetV2
from jcas.schema import Output

_COARSEST = 32
_SMALLEST = 64  # two pixels at the coarsest grid: BatchNorm needs more than one value, also for a single image
_OUTPUT_STRIDE = 4


class SeparableConvolution(nn.Sequential):
    """A 3x3 filter for each channel, then a 1x1 mixture, both normalised; ``relu=False`` leaves the end linear."""

    def __init__(self, inputs: int, outputs: int, *, relu: bool = True) -> None:
        mixed: list[nn.Module] = [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)] if relu else []
        super().__init__(
            nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, outputs, 1, bias=not relu),
            *mixed,
        )


class Enlarge(nn.Sequential):
    """A separable convolution and a transposed one that doubles the grid."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            SeparableConvolution(inputs, outputs),
            nn.ConvTranspose2d(outputs, outputs, 4, stride=2, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class AttentionFusion(nn.Module):
    """Sum of a coarse and a fine map, every channel of each weighted between 0 and 1 by its own average.

    The averages are single pixels, which BatchNorm cannot normalise for a batch of one: group normalisation here.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()

        def gate() -> nn.Sequential:
            return nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(channels, channels, 1),
                nn.GroupNorm(1, channels),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels, channels, 1),
                nn.GroupNorm(1, channels),
                nn.Sigmoid(),
            )

        self.high_gate = gate()
        self.low_gate = gate()

    def forward(self, high: Tensor, low: Tensor) -> Tensor:
        """(B, c, h, w) of the decoder and of the encoder -> (B, c, h, w)."""
        return high * self.high_gate(high) + low * self.low_gate(low)


class LWANet(SegmentationModel):
    """Light-weight attention network (Ni et al., ICRA 2020) for surgical instruments; logits at 1/4 of the side.

    Any image size: sides are padded to multiples of 32 and the logits cut back. The published network ends in BatchNorm
    and ReLU, so no logit is below 0 and whole regions tie; ours ends in the convolution unless ``final_relu``.

    Args:
        num_classes: classes, background included.
        channels: channels of the images; grey is repeated to three.
        final_relu: end as published.
        width: share of the paper's channels in every layer; the pretrained file needs 1.
    """

    encoder: MobileNetV2

    def __init__(self, *, num_classes: int, channels: int, final_relu: bool = False, width: float = 1.0) -> None:
        super().__init__()
        self.encoder = MobileNetV2(in_channels=3 if channels == 1 else channels, width=width)
        self.normalise = InputNormalisation(channels=channels, mean=self.encoder.mean, std=self.encoder.std)
        first, second, third, fourth = self.encoder.widths
        self.enlarge3 = Enlarge(fourth, third)
        self.enlarge2 = Enlarge(third, second)
        self.enlarge1 = Enlarge(second, first)
        self.fusion3 = AttentionFusion(third)
        self.fusion2 = AttentionFusion(second)
        self.fusion1 = AttentionFusion(first)
        self.classifier = nn.Sequential(
            SeparableConvolution(first, first), SeparableConvolution(first, num_classes, relu=final_relu)
        )

    def forward(self, image: Tensor) -> Output:
        """Logits of ``image`` (B, channels, H, W) on the grid of (H / 4, W / 4), rounded up."""
        height, width = (-(-side // _OUTPUT_STRIDE) for side in image.shape[-2:])
        normalised = padded(self.normalise(image), multiple=_COARSEST, smallest=_SMALLEST)
        first, second, third, fourth = self.encoder.stages(normalised)
        x = self.fusion3(self.enlarge3(fourth), third)
        x = self.fusion2(self.enlarge2(x), second)
        x = self.fusion1(self.enlarge1(x), first)
        return Output(logits=self.classifier(x)[..., :height, :width])
