"""Models: image -> Output(logits, features, auxiliary). They know nothing of noise.

>>> import torch
>>> model = build_model("tiny", num_classes=4, channels=1, feature_dim=32)
>>> output = model(torch.rand(2, 1, 64, 80))
>>> output.logits.shape, output.features.shape
(torch.Size([2, 4, 32, 40]), torch.Size([2, 32, 16, 20]))
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from jcas.models.base import Encoder, InputNormalisation, Maps, SegmentationModel
from jcas.models.deeplabv2 import DeepLabV2
from jcas.models.lite0 import Lite0
from jcas.models.resnet import ResNet
from jcas.models.tiny import Tiny
from jcas.models.unet import UNet
from jcas.models.zoo import TimmEncoder

__all__ = [
    "MODELS",
    "DeepLabV2",
    "Encoder",
    "InputNormalisation",
    "Lite0",
    "Maps",
    "ModelOptions",
    "ResNet",
    "SegmentationModel",
    "TimmEncoder",
    "Tiny",
    "UNet",
    "build_model",
]


@dataclass(frozen=True)
class ModelOptions:
    """What :func:`build_model` hands to a builder of ``MODELS``; each option is explained there."""

    num_classes: int
    channels: int
    feature_dim: int = 0
    auxiliary: bool = True
    auxiliary_features: bool = False
    pretrained: bool | str = False
    head: str = "light"
    released_dilations: bool = False
    released_encoder: bool = False
    freeze_bn_affine: bool = False
    output_stride: int = 8

    @property
    def encoder_channels(self) -> int:
        """Input channels of an encoder with an ImageNet past: grey is repeated to three."""
        return 3 if self.channels == 1 else self.channels


def _with_heads(encoder: Encoder, options: ModelOptions) -> SegmentationModel:
    if options.pretrained is not False and not isinstance(encoder, TimmEncoder):
        encoder.load_pretrained(options.pretrained)
    return DeepLabV2(
        encoder,
        num_classes=options.num_classes,
        channels=options.channels,
        feature_dim=options.feature_dim,
        auxiliary=options.auxiliary,
        auxiliary_features=options.auxiliary_features,
        head=options.head,
        released_dilations=options.released_dilations,
    )


def _resnet(name: str, options: ModelOptions) -> SegmentationModel:
    encoder = ResNet(
        name,
        in_channels=options.encoder_channels,
        released=options.released_encoder,
        freeze_bn_affine=options.freeze_bn_affine,
    )
    return _with_heads(encoder, options)


def _lite0(options: ModelOptions) -> SegmentationModel:
    encoder = Lite0(in_channels=options.encoder_channels, output_stride=options.output_stride)
    return _with_heads(encoder, options)


def _tiny(options: ModelOptions) -> SegmentationModel:
    return _with_heads(Tiny(in_channels=options.channels), options)


def _timm(name: str, options: ModelOptions) -> SegmentationModel:
    if isinstance(options.pretrained, str):
        raise ValueError(f"timm:{name} fetches its own weights, got pretrained={options.pretrained!r}")
    encoder = TimmEncoder(
        name,
        in_channels=options.encoder_channels,
        output_stride=options.output_stride,
        pretrained=options.pretrained,
    )
    return _with_heads(encoder, options)


def _unet(options: ModelOptions) -> SegmentationModel:
    if options.pretrained is not False:
        raise ValueError(f"unet has no pretrained weights, got pretrained={options.pretrained!r}")
    if options.head != "light":
        raise ValueError(f"unet has the light feature head only, got {options.head!r}")
    return UNet(
        num_classes=options.num_classes,
        channels=options.channels,
        feature_dim=options.feature_dim,
        auxiliary=options.auxiliary,
        auxiliary_features=options.auxiliary_features,
    )


MODELS: dict[str, Callable[[ModelOptions], SegmentationModel]] = {
    "tiny": _tiny,
    "unet": _unet,
    "lite0": _lite0,
    "resnet18": partial(_resnet, "resnet18"),
    "resnet34": partial(_resnet, "resnet34"),
    "resnet50": partial(_resnet, "resnet50"),
    "resnet101": partial(_resnet, "resnet101"),
}
"""Encoder name -> builder. ``timm:NAME`` works too and is resolved by timm."""

_TIMM = "timm:"
_ONLY_FOR = {  # option -> encoders that know it; anywhere else it would be ignored in silence
    "released_encoder": ("resnet",),
    "freeze_bn_affine": ("resnet",),
    "output_stride": ("lite0", _TIMM),
    "released_dilations": ("resnet", "lite0", _TIMM),
}


def build_model(
    encoder: str,
    *,
    num_classes: int,
    channels: int,
    feature_dim: int = 0,
    auxiliary: bool = True,
    auxiliary_features: bool = False,
    pretrained: bool | str = False,
    head: str = "light",
    released_dilations: bool = False,
    released_encoder: bool = False,
    freeze_bn_affine: bool = False,
    output_stride: int = 8,
) -> SegmentationModel:
    """Build the model named ``encoder``; images of 0..1 go in, :class:`~jcas.schema.Output` comes out.

    Args:
        encoder: a name in ``MODELS``, or ``timm:NAME``.
        num_classes: classes, background included.
        channels: channels of the images; grey ones are repeated for encoders that take RGB.
        feature_dim: channels of the pixel features; 0 (a plain segmenter) builds no feature head.
        auxiliary: build the auxiliary classifier.
        auxiliary_features: give the auxiliary output pixel features too.
        pretrained: ``True`` for the published ImageNet weights, or the path of a file of the same layout.
        head: feature head, ``"light"`` (1x1 projection) or ``"released"`` (dilated 3x3 convolutions).
        released_dilations: only the first two of the four dilations, as the released JCAS code.
        released_encoder: strides, pooling and input scaling of the released JCAS network (ResNet only).
        freeze_bn_affine: keep BatchNorm's scale and shift fixed (ResNet only).
        output_stride: 8, 16 or 32 image pixels per pixel of the map (lite0 and timm only).

    Raises:
        ValueError: an unknown name or an option that this encoder cannot honour.
    """
    options = ModelOptions(
        num_classes=num_classes,
        channels=channels,
        feature_dim=feature_dim,
        auxiliary=auxiliary,
        auxiliary_features=auxiliary_features,
        pretrained=pretrained,
        head=head,
        released_dilations=released_dilations,
        released_encoder=released_encoder,
        freeze_bn_affine=freeze_bn_affine,
        output_stride=output_stride,
    )
    if encoder not in MODELS and not encoder.startswith(_TIMM):
        near = difflib.get_close_matches(encoder, MODELS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown encoder {encoder!r}, did you mean {near!r}? (known: {', '.join(MODELS)}, timm:NAME)")
    for name, smallest in (("num_classes", 2), ("channels", 1), ("feature_dim", 0)):
        if getattr(options, name) < smallest:
            raise ValueError(f"{name} must be at least {smallest}, got {getattr(options, name)}")
    for name, known in _ONLY_FOR.items():
        default = ModelOptions.__dataclass_fields__[name].default
        if getattr(options, name) != default and not encoder.startswith(known):
            raise ValueError(f"encoder {encoder!r} has no option {name}, got {getattr(options, name)!r}")
    if encoder.startswith(_TIMM):
        return _timm(encoder.removeprefix(_TIMM), options)
    return MODELS[encoder](options)
