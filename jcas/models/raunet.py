"""RAUNet: ResNet-34, a LinkNet decoder, and attention that lets the decoder choose among the encoder's channels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from jcas.models.base import InputNormalisation, SegmentationModel, padded
from jcas.models.resnet import ResNet
from jcas.schema import Output

_COARSEST = 32
_SMALLEST = 64  # two pixels at the coarsest grid: BatchNorm needs more than one value, also for a single image


def _projection(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class DecoderBlock(nn.Sequential):
    """Narrow to a quarter, double the grid by a transposed convolution, widen (LinkNet, Chaurasia 2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        narrow = inputs // 4
        super().__init__(
            _projection(inputs, narrow),
            nn.ConvTranspose2d(narrow, narrow, 4, stride=2, padding=1),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            _projection(narrow, outputs),
        )


class AugmentedAttention(nn.Module):
    """Add the encoder's map to the decoder's, each channel weighted by what both maps hold on average.

    The averages are single pixels, which BatchNorm cannot normalise for a batch of one: group normalisation here.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()

        def summary() -> nn.Sequential:
            return nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.GroupNorm(1, channels), nn.ReLU()
            )

        self.high_summary = summary()
        self.low_summary = summary()
        self.choose = nn.Conv2d(channels, channels, 1)
        self.project = _projection(channels, channels)

    def forward(self, high: Tensor, low: Tensor) -> Tensor:
        """(B, c, h, w) of the decoder and of the encoder -> (B, c, h, w)."""
        weights = self.choose(self.high_summary(high) + self.low_summary(low)).softmax(1)
        return high + self.project(low) * weights


class RAUNet(SegmentationModel):
    """RAUNet (Ni et al., ICONIP 2019), for surgical instruments; logits at the size of the image.

    Any image size: sides are padded to multiples of 32 and the logits cut back (the paper takes multiples only). Images
    are normalised as ImageNet's, which the encoder's published weights expect (the authors: mean and deviation 0.5).

    Args:
        num_classes: classes, background included.
        channels: channels of the images; grey is repeated to three.
        width: channels at 1/4 of the side, doubled at 1/8, 1/16 and 1/32; the paper's and the pretrained file's are 64.
    """

    encoder: ResNet

    def __init__(self, *, num_classes: int, channels: int, width: int = 64) -> None:
        super().__init__()
        self.encoder = ResNet("resnet34", in_channels=3 if channels == 1 else channels, dilated=False, width=width)
        self.normalise = InputNormalisation(channels=channels, mean=self.encoder.mean, std=self.encoder.std)
        first, second, third, fourth = width, 2 * width, 4 * width, 8 * width
        self.decoder4 = DecoderBlock(fourth, third)
        self.decoder3 = DecoderBlock(third, second)
        self.decoder2 = DecoderBlock(second, first)
        self.decoder1 = DecoderBlock(first, first)
        self.attention3 = AugmentedAttention(third)
        self.attention2 = AugmentedAttention(second)
        self.attention1 = AugmentedAttention(first)
        # h -> 2 h + 1 -> 2 h - 1 -> 2 h: exactly the size of the image
        self.enlarge = nn.ConvTranspose2d(first, first // 2, 3, stride=2)
        self.smooth = nn.Conv2d(first // 2, first // 2, 3)
        self.classifier = nn.Conv2d(first // 2, num_classes, 2, padding=1)

    def forward(self, image: Tensor) -> Output:
        """Logits of ``image`` (B, channels, H, W)."""
        height, width = image.shape[-2:]
        normalised = padded(self.normalise(image), multiple=_COARSEST, smallest=_SMALLEST)
        first, second, third, fourth = self.encoder.stages(normalised)
        x = self.attention3(self.decoder4(fourth), third)
        x = self.attention2(self.decoder3(x), second)
        x = self.attention1(self.decoder2(x), first)
        x = functional.relu(self.enlarge(self.decoder1(x)), inplace=True)
        x = functional.relu(self.smooth(x), inplace=True)
        return Output(logits=self.classifier(x)[..., :height, :width])
