"""Resize images and labels on the same pixel grid (half-pixel centres for both, so edges stay together)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import interpolate


def resize_image(
    image: Tensor,  # (channels, H, W)
    size: tuple[int, int],
    *,
    mode: Literal["bilinear", "bicubic"] = "bilinear",
) -> Tensor:  # (channels, *size)
    """Resize with antialiasing; bicubic overshoot is cut back to 0..1."""
    if tuple(image.shape[-2:]) == size:
        return image
    return interpolate(image[None], size=size, mode=mode, align_corners=False, antialias=True)[0].clamp(0, 1)


def resize_labels(labels: Tensor, size: tuple[int, int]) -> Tensor:  # (H, W) -> size, same dtype
    """Take the nearest pixel: no label or weight that was not there before.

    >>> import torch
    >>> resize_labels(torch.tensor([[0, 0, 255, 255], [0, 0, 3, 3]]), (1, 2))
    tensor([[0, 3]])
    """
    if tuple(labels.shape) == size:
        return labels
    # float64 holds every label exactly; "nearest" (without "-exact") would shift labels by half a pixel.
    return interpolate(labels[None, None].double(), size=size, mode="nearest-exact")[0, 0].to(labels.dtype)
