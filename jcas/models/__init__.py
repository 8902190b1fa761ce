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
from jcas.models.lwanet import LWANet
from jcas.models.mobilenet import MobileNetV2
from jcas.models.ocrnet import KEY_DIM, PIXEL_DIM, OCRNet
from jcas.models.raunet import RAUNet
from jcas.models.resnet import ResNet
from jcas.models.tiny import Tiny
from jcas.models.unet import UNet
from jcas.models.zoo import TimmEncoder

__all__ = [
    "ENCODERS",
    "MODELS",
    "DeepLabV2",
    "Encoder",
    "InputNormalisation",
    "LWANet",
    "Lite0",
    "Maps",
    "MobileNetV2",
    "ModelOptions",
    "OCRNet",
    "RAUNet",
    "ResNet",
    "SegmentationModel",
    "TimmEncoder",
    "Tiny",
    "UNet",
    "build_model",
    "check_encoder",
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
    final_relu: bool = False

    @property
    def encoder_channels(self) -> int:
        """Input channels of an encoder with an ImageNet past: grey is repeated to three."""
        return 3 if self.channels == 1 else self.channels


def _resnet(name: str, options: ModelOptions) -> Encoder:
    return ResNet(
        name,
        in_channels=options.encoder_channels,
        released=options.released_encoder,
        freeze_bn_affine=options.freeze_bn_affine,
    )


def _lite0(options: ModelOptions) -> Encoder:
    return Lite0(in_channels=options.encoder_channels, output_stride=options.output_stride)


def _tiny(options: ModelOptions) -> Encoder:
    return Tiny(in_channels=options.channels)


ENCODERS: dict[str, Callable[[ModelOptions], Encoder]] = {
    "tiny": _tiny,
    "lite0": _lite0,
    "resnet18": partial(_resnet, "resnet18"),
    "resnet34": partial(_resnet, "resnet34"),
    "resnet50": partial(_resnet, "resnet50"),
    "resnet101": partial(_resnet, "resnet101"),
}
"""Trunks that any heads fit on."""

_TIMM, _OCRNET, _SMALL = "timm:", "ocrnet:", ":tiny"


def _encoder(name: str, options: ModelOptions) -> Encoder:
    """A trunk, filled with pretrained weights if asked."""
    if name.startswith(_TIMM):
        name = name.removeprefix(_TIMM)
        if isinstance(options.pretrained, str):
            raise ValueError(f"timm:{name} fetches its own weights, got pretrained={options.pretrained!r}")
        return TimmEncoder(
            name,
            in_channels=options.encoder_channels,
            output_stride=options.output_stride,
            pretrained=options.pretrained,
        )
    encoder = ENCODERS[name](options)
    if options.pretrained is not False:
        encoder.load_pretrained(options.pretrained)
    return encoder


def _deeplab(encoder: str, options: ModelOptions) -> SegmentationModel:
    return DeepLabV2(
        _encoder(encoder, options),
        num_classes=options.num_classes,
        channels=options.channels,
        feature_dim=options.feature_dim,
        auxiliary=options.auxiliary,
        auxiliary_features=options.auxiliary_features,
        head=options.head,
        released_dilations=options.released_dilations,
    )


def _unet(options: ModelOptions) -> SegmentationModel:
    if options.pretrained is not False:
        raise ValueError(f"unet has no pretrained weights, got pretrained={options.pretrained!r}")
    if options.head != "light":
        raise ValueError(f"unet has the light feature head only, got {options.head!r}: choose another --encoder")
    return UNet(
        num_classes=options.num_classes,
        channels=options.channels,
        feature_dim=options.feature_dim,
        auxiliary=options.auxiliary,
        auxiliary_features=options.auxiliary_features,
    )


def _ocrnet(encoder: str, options: ModelOptions) -> SegmentationModel:
    _expect_no_features("ocrnet", options)
    small = encoder == "tiny"
    return OCRNet(
        Tiny(in_channels=options.channels, fine=False) if small else _encoder(encoder, options),
        num_classes=options.num_classes,
        channels=options.channels,
        auxiliary=options.auxiliary,
        pixel_dim=64 if small else PIXEL_DIM,
        key_dim=32 if small else KEY_DIM,
    )


def _raunet(options: ModelOptions, *, width: int = 64) -> SegmentationModel:
    _expect_no_features("raunet", options)
    model = RAUNet(num_classes=options.num_classes, channels=options.channels, width=width)
    if options.pretrained is not False:
        model.encoder.load_pretrained(options.pretrained)
    return model


def _lwanet(options: ModelOptions, *, width: float = 1.0) -> SegmentationModel:
    _expect_no_features("lwanet", options)
    model = LWANet(
        num_classes=options.num_classes, channels=options.channels, final_relu=options.final_relu, width=width
    )
    if options.pretrained is not False:
        model.encoder.load_pretrained(options.pretrained)
    return model


def _expect_no_features(name: str, options: ModelOptions) -> None:
    if options.feature_dim or options.auxiliary_features:
        raise ValueError(f"{name} has no pixel features, got feature_dim={options.feature_dim}; choose another encoder")


MODELS: dict[str, Callable[[ModelOptions], SegmentationModel]] = {
    **{name: partial(_deeplab, name) for name in ENCODERS},
    "unet": _unet,
    "raunet": _raunet,
    "lwanet": _lwanet,
    "ocrnet": partial(_ocrnet, "resnet50"),
    # The same structures for one CPU core, to stand beside `tiny`: 0.5 to 1.4 M parameters.
    "raunet:tiny": partial(_raunet, width=16),
    "lwanet:tiny": partial(_lwanet, width=0.5),
    "ocrnet:tiny": partial(_ocrnet, "tiny"),
}
"""Name -> builder: an encoder with DeepLabV2 heads, or a network of its own, in the paper's size or small.

``timm:NAME`` works too and is resolved by timm; ``ocrnet:NAME`` puts OCRNet's heads on another encoder.
"""

_ONLY_FOR = {  # option -> encoders that know it; anywhere else it would be ignored in silence
    "released_encoder": ("resnet",),
    "freeze_bn_affine": ("resnet",),
    "output_stride": ("lite0", _TIMM),
    "released_dilations": ("resnet", "lite0", _TIMM),
    "final_relu": ("lwanet",),
}


def check_encoder(name: str) -> None:
    """Raise what `build_model` would raise for an unknown name, without building anything; timm knows its own."""
    trunk = name.removeprefix(_OCRNET)
    known_names = MODELS if trunk == name else ENCODERS
    if trunk not in known_names and not trunk.startswith(_TIMM):
        near = difflib.get_close_matches(name, MODELS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown encoder {name!r}, did you mean {near!r}? (known: {', '.join(MODELS)}, timm:NAME)")


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
    final_relu: bool = False,
) -> SegmentationModel:
    """Build the model named ``encoder``; images of 0..1 go in, :class:`~jcas.schema.Output` comes out.

    Args:
        encoder: a name in ``MODELS``, ``timm:NAME``, or ``ocrnet:NAME`` with the name of an encoder.
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
        final_relu: end in BatchNorm and ReLU, as published (lwanet only).

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
        final_relu=final_relu,
    )
    check_encoder(encoder)
    trunk = encoder.removeprefix(_OCRNET)
    for name, smallest in (("num_classes", 2), ("channels", 1), ("feature_dim", 0)):
        if getattr(options, name) < smallest:
            raise ValueError(f"{name} must be at least {smallest}, got {getattr(options, name)}")
    if encoder.endswith(_SMALL) and pretrained is not False:
        full = encoder.removesuffix(_SMALL)
        raise ValueError(f"{encoder} has no pretrained weights, got pretrained={pretrained!r}; {full} has")
    for name, known in _ONLY_FOR.items():
        default = ModelOptions.__dataclass_fields__[name].default
        if getattr(options, name) != default and not encoder.startswith(known):
            raise ValueError(f"encoder {encoder!r} has no option {name}, got {getattr(options, name)!r}")
    if trunk != encoder:
        model = _ocrnet(trunk, options)
    elif encoder.startswith(_TIMM):
        model = _deeplab(encoder, options)
    else:
        model = MODELS[encoder](options)
    model.pretrained = pretrained is not False
    return model
