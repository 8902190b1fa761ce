"""DeepLabV2 heads on any encoder: classes, an auxiliary classifier, and pixel features for affinities."""

from __future__ import annotations

from torch import Tensor, nn

from jcas.models.base import Encoder, InputNormalisation, SegmentationModel
from jcas.schema import Output


class DilatedSum(nn.Module):
    """Sum of 3x3 convolutions with different dilations, the ASPP head of DeepLabV2 (Chen et al., TPAMI 2018)."""

    def __init__(self, inputs: int, outputs: int, *, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList()
        for dilation in dilations:
            branch = nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation)
            nn.init.normal_(branch.weight, std=0.01)
            assert branch.bias is not None
            nn.init.zeros_(branch.bias)
            self.branches.append(branch)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, h, w) -> (B, outputs, h, w), all branches added."""
        total = self.branches[0](x)
        for branch in self.branches[1:]:
            total = total + branch(x)
        return total


def _head(inputs: int, outputs: int, *, dilations: tuple[int, ...]) -> nn.Module:
    """The paper's head; without dilations (an encoder trained from scratch) a plain convolution.

    DeepLab's small start suits a pretrained encoder. From scratch it only delays: the trunk waits for the head.
    """
    if not dilations:
        return nn.Conv2d(inputs, outputs, 3, padding=1)
    return DilatedSum(inputs, outputs, dilations=dilations)


class PixelFeatures(nn.Sequential):
    """Light feature head: a 1x1 projection, centred and scaled per image and channel.

    Affinity keeps the positive part of a feature and compares angles; without centring, every pixel would share one
    large common direction and all affinities would start near 1.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, 1, bias=False), nn.GroupNorm(outputs, outputs))


class DeepLabV2(SegmentationModel):
    """An encoder with DeepLabV2 heads; image (B, channels, H, W) of 0..1 -> Output.

    The network of JCAS (Guo & Yuan, MICCAI 2022): a classifier on the last map, an auxiliary classifier on the map
    before, and beside each a head of pixel features. A head that nobody asked for is not built. Encoders that decode
    to a fine grid (``tiny``, ``unet``) ask for undilated heads.

    Args:
        encoder: the trunk; decides about normalisation and dilations.
        num_classes: classes, background included.
        channels: channels of the images; 1 is repeated where the encoder takes 3.
        feature_dim: channels of the main features; 0 builds no feature head.
        auxiliary: build the auxiliary classifier.
        auxiliary_features: give the auxiliary output features too.
        head: ``"light"``: features by a 1x1 projection; ``"released"``: by a sum of dilated 3x3 convolutions, with
            half as many channels (256 -> 128) in the auxiliary head.
        released_dilations: use only the first two dilations in all heads, as the released code does by an early
            ``return``.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        num_classes: int,
        channels: int,
        feature_dim: int = 0,
        auxiliary: bool = True,
        auxiliary_features: bool = False,
        head: str = "light",
        released_dilations: bool = False,
    ) -> None:
        super().__init__()
        if head not in ("light", "released"):
            raise ValueError(f"head is 'light' or 'released', got {head!r}")
        if auxiliary_features and not (auxiliary and feature_dim):
            raise ValueError("auxiliary_features needs auxiliary=True and feature_dim > 0")
        dilations = encoder.head_dilations[:2] if released_dilations else encoder.head_dilations
        before, affinity, last = encoder.channels

        def features(inputs: int, outputs: int) -> nn.Module:
            if head == "light":
                return PixelFeatures(inputs, outputs)
            return _head(inputs, outputs, dilations=dilations)

        self.normalise = InputNormalisation(channels=channels, mean=encoder.mean, std=encoder.std, bgr=encoder.bgr)
        self.encoder = encoder
        self.classifier = _head(last, num_classes, dilations=dilations)
        self.features = features(affinity, feature_dim) if feature_dim else None
        self.auxiliary_classifier = _head(before, num_classes, dilations=dilations) if auxiliary else None
        auxiliary_dim = feature_dim if head == "light" else max(feature_dim // 2, 1)
        self.auxiliary_features = features(before, auxiliary_dim) if auxiliary_features else None

    def forward(self, image: Tensor) -> Output:
        """Coarse logits, features and the auxiliary head's output for ``image``."""
        maps = self.encoder(self.normalise(image))
        auxiliary = None
        if self.auxiliary_classifier is not None:
            auxiliary = Output(
                logits=self.auxiliary_classifier(maps.auxiliary),
                features=None if self.auxiliary_features is None else self.auxiliary_features(maps.auxiliary),
            )
        return Output(
            logits=self.classifier(maps.main),
            features=None if self.features is None else self.features(maps.affinity),
            auxiliary=auxiliary,
        )
