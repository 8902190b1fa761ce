"""MONAI's residual U-Net, opened up so that pixel features and an auxiliary output can be read from its decoder."""

from __future__ import annotations

from monai.networks.nets import UNet as MonaiUNet
from torch import Tensor, cat, nn
from torch.nn import functional

from jcas.models.base import InputNormalisation, SegmentationModel
from jcas.models.deeplabv2 import PixelFeatures
from jcas.schema import Output

CHANNELS = (16, 32, 64, 128, 128)
"""Channels at strides 2, 4, 8, 16 and at the bottom (stride 16): 0.59 M parameters, meant for a CPU."""

RESIDUAL_UNITS = 1

_COARSEST = 2 ** (len(CHANNELS) - 1)


class UNet(SegmentationModel):
    """Residual U-Net (Kerfoot et al., STACOM 2018) with instance normalisation, as MONAI builds it.

    Logits have the size of the image, features 1/4 of its side and the auxiliary output 1/8. The contracting path is
    the ``encoder``; no pretrained weights exist.

    Args:
        num_classes: classes, background included.
        channels: channels of the images.
        feature_dim: channels of the features; 0 builds no feature head.
        auxiliary: build a classifier on the stride-8 map of the decoder.
        auxiliary_features: give the auxiliary output features too.
    """

    encoder: nn.ModuleList

    def __init__(
        self,
        *,
        num_classes: int,
        channels: int,
        feature_dim: int = 0,
        auxiliary: bool = True,
        auxiliary_features: bool = False,
    ) -> None:
        super().__init__()
        if auxiliary_features and not (auxiliary and feature_dim):
            raise ValueError("auxiliary_features needs auxiliary=True and feature_dim > 0")
        whole = MonaiUNet(
            spatial_dims=2,
            in_channels=channels,
            out_channels=num_classes,
            channels=CHANNELS,
            strides=(2,) * (len(CHANNELS) - 1),
            num_res_units=RESIDUAL_UNITS,
        )
        downs, ups = _paths(whole.model)
        self.normalise = InputNormalisation(channels=channels, mean=(0.5,) * channels, std=(0.25,) * channels)
        self.encoder = nn.ModuleList(downs)
        self.decoder = nn.ModuleList(ups)
        self.features = PixelFeatures(CHANNELS[1], feature_dim) if feature_dim else None
        self.auxiliary_classifier = nn.Conv2d(CHANNELS[2], num_classes, 3, padding=1) if auxiliary else None
        self.auxiliary_features = PixelFeatures(CHANNELS[2], feature_dim) if auxiliary_features else None

    def forward(self, image: Tensor) -> Output:
        """Logits (B, C, H, W), features (B, d, H / 4, W / 4), auxiliary output on (H / 8, W / 8)."""
        height, width = image.shape[-2:]
        x = _padded(self.normalise(image))
        skips = []
        for down in self.encoder:
            x = down(x)
            skips.append(x)
        skips.pop()  # the bottom has no shortcut
        decoded: dict[int, Tensor] = {}  # stride -> map
        for up, skip in zip(self.decoder, reversed(skips), strict=True):
            x = up(cat((skip, x), dim=1))
            decoded[2 ** (len(skips) - 1 - len(decoded))] = x

        def cut(found: Tensor, stride: int) -> Tensor:
            return found[..., : -(-height // stride), : -(-width // stride)]

        auxiliary = None
        if self.auxiliary_classifier is not None:
            coarse = cut(decoded[8], 8)
            auxiliary = Output(
                logits=self.auxiliary_classifier(coarse),
                features=None if self.auxiliary_features is None else self.auxiliary_features(coarse),
            )
        return Output(
            logits=cut(decoded[1], 1),
            features=None if self.features is None else self.features(cut(decoded[4], 4)),
            auxiliary=auxiliary,
        )


def _paths(block: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """The contracting path (bottom last) and the expanding path (bottom first) of MONAI's nested blocks."""
    downs: list[nn.Module] = []
    ups: list[nn.Module] = []
    while isinstance(block, nn.Sequential):
        down, skip, up = block
        downs.append(down)
        ups.insert(0, up)
        block = skip.get_submodule("submodule")
    return [*downs, block], ups


def _padded(x: Tensor) -> Tensor:
    """Repeat the right and bottom edge until both sides divide by the coarsest stride."""
    height, width = (-size % _COARSEST for size in x.shape[-2:])
    return functional.pad(x, (0, width, 0, height), mode="replicate") if height or width else x
