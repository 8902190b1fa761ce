"""Random views of a training image, image and labels by the same geometry (MONAI dictionary transforms).

Between :class:`Encode` and :class:`Decode` labels are stored as ``label - 255``: every transform pads with 0, so
padding comes out as 255 = ignored, and the weight of padding as 0, with no special case anywhere.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from monai.transforms import (
    Affine,
    Compose,
    RandAdjustContrastd,
    RandFlipd,
    RandGaussianNoised,
    RandomizableTransform,
    RandScaleIntensityFixedMeand,
    RandShiftIntensityd,
    RandSpatialCropd,
    SpatialPadd,
    Transform,
)

from jcas.schema import IGNORE

Augmentation = Literal["none", "flip", "strong"]
AUGMENTATIONS: tuple[str, ...] = get_args(Augmentation)

Item = dict[str, Any]  # "image" (channels, H, W); "noisy" and, where they exist, "clean" and "weight" (1, H, W)

_LABELS = ("noisy", "clean")
_NEAREST = (*_LABELS, "weight")
_KEYS = ("image", *_NEAREST)
_LARGEST_ANGLE = math.radians(15)
_ZOOM = (0.8, 1.25)


class Encode(Transform):
    """Labels to ``label - 255`` in float32, the type in which MONAI resamples."""

    def __call__(self, item: Item) -> Item:
        """Encode the labels of an item."""
        return item | {key: item[key].float() - IGNORE for key in _LABELS if key in item}


class Decode(Transform):
    """Undo :class:`Encode`, cut the image back to 0..1 and leave MONAI's tensor type."""

    def __call__(self, item: Item) -> Item:
        """Decode the labels of an item."""
        decoded = {key: torch.as_tensor(_plain(item[key])) for key in _KEYS if key in item}
        decoded["image"] = decoded["image"].clamp(0, 1).contiguous()
        decoded |= {key: decoded[key].round().long() + IGNORE for key in _LABELS if key in decoded}
        return item | decoded


class RandomTurn(RandomizableTransform):
    """Rotate by up to 15 degrees and zoom by 0.8 to 1.25 (same for both axes) in one resampling."""

    def __init__(self, *, prob: float) -> None:
        super().__init__(prob)
        self.angle = 0.0
        self.zoom = 1.0

    def randomize(self, data: Any = None) -> None:
        """Draw the angle and the zoom."""
        super().randomize(data)
        self.angle = self.R.uniform(-_LARGEST_ANGLE, _LARGEST_ANGLE)
        self.zoom = math.exp(self.R.uniform(math.log(_ZOOM[0]), math.log(_ZOOM[1])))

    def __call__(self, item: Item) -> Item:
        """Turn image (bilinear), labels and weight (nearest) alike."""
        self.randomize()
        if not self._do_transform:
            return item
        # MONAI scales the sampling grid, so its factor is the inverse of the zoom.
        scale = 1 / self.zoom
        turn = Affine(self.angle, scale_params=(scale, scale), padding_mode="zeros", image_only=True)
        modes = {"image": "bilinear"} | dict.fromkeys(_NEAREST, "nearest")
        return item | {key: turn(item[key], mode=modes[key]) for key in _KEYS if key in item}


def training_view(*, augmentation: Augmentation, crop: tuple[int, int] | None) -> Compose:
    """The random transform of a training item: geometry first, then intensity (of the image only)."""
    steps: list[Any] = [Encode()]
    if augmentation != "none":
        steps.append(RandFlipd(_KEYS, prob=0.5, spatial_axis=1, allow_missing_keys=True))
    if augmentation == "strong":
        steps.append(RandomTurn(prob=0.8))
    if crop is not None:
        steps.append(SpatialPadd(_KEYS, crop, allow_missing_keys=True))
        steps.append(RandSpatialCropd(_KEYS, crop, random_size=False, allow_missing_keys=True))
    if augmentation == "strong":
        steps += [
            RandShiftIntensityd("image", offsets=0.1, prob=0.5),
            RandScaleIntensityFixedMeand("image", factors=0.25, prob=0.5),
            RandAdjustContrastd("image", gamma=(0.7, 1.5), prob=0.5),
            RandGaussianNoised("image", std=0.03, prob=0.5),
        ]
    return Compose([*steps, Decode()])


def evaluation_view() -> Compose:
    """The whole image as it is."""
    return Compose([Encode(), Decode()])


def _plain(tensor: Any) -> Any:
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor
