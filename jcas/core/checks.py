"""Every complaint of `jcas.core` about its arguments: it names the argument and shows the offending value."""

from __future__ import annotations

import torch
from torch import Tensor

IGNORE = 255
_ROW_TOLERANCE = 1e-4  # float32 rows of softmax or division sum to 1 within about 1e-6


def check_rate(rate: float) -> None:
    """A noise rate is a share of pixels: 0 <= rate < 1."""
    if not 0.0 <= rate < 1.0:  # NaN fails the comparison too
        raise ValueError(f"rate must lie in [0, 1), got {rate}")


def check_num_classes(num_classes: int) -> None:
    """Noise between classes needs two of them."""
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")


def check_square(matrix: Tensor, name: str) -> None:
    """A (C, C) matrix, C >= 2, with finite and non-negative entries."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise ValueError(f"{name} must be a square matrix of at least 2 x 2, got shape {tuple(matrix.shape)}")
    values = matrix.detach()
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} holds values that are not finite: {values.tolist()}")
    if bool((values < 0).any()):
        raise ValueError(f"{name} must not be negative, its smallest entry is {values.min().item():.6g}")


def check_transition(transition: Tensor, name: str = "transition", *, num_classes: int | None = None) -> None:
    """A row-stochastic matrix, of a given size if one is given."""
    check_square(transition, name)
    if num_classes is not None and transition.shape[0] != num_classes:
        raise ValueError(f"{name} must be {num_classes} x {num_classes}, got shape {tuple(transition.shape)}")
    sums = transition.detach().double().sum(1)
    worst = int((sums - 1).abs().argmax())
    if abs(sums[worst].item() - 1) > _ROW_TOLERANCE:
        raise ValueError(f"rows of {name} must sum to 1, row {worst} sums to {sums[worst].item():.6g}")


def check_prior(prior: Tensor, num_classes: int) -> None:
    """Class proportions or counts: (C,), non-negative, not all zero."""
    if prior.shape != (num_classes,):
        raise ValueError(f"prior must have shape ({num_classes},), got {tuple(prior.shape)}")
    values = prior.detach()
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()) or not bool((values > 0).any()):
        raise ValueError(f"prior must be non-negative, finite and not all zero, got {values.tolist()}")


def check_labels(noisy: Tensor, shape: torch.Size, name: str = "noisy", *, num_classes: int = IGNORE) -> None:
    """Integer labels of a given shape, each a class or 255 = ignore."""
    if noisy.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(noisy.shape)}")
    if noisy.is_floating_point() or noisy.is_complex() or noisy.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, got dtype {noisy.dtype}")
    bad = ((noisy < 0) | (noisy >= num_classes)) & (noisy != IGNORE)
    if bool(bad.any()):
        value = int(noisy[bad][0])
        raise ValueError(f"{name} holds label {value}, allowed are 0..{num_classes - 1} and {IGNORE} (ignore)")


def check_weight(weight: Tensor, shape: torch.Size, name: str = "weight") -> None:
    """Per-pixel trust of a given shape: finite, not negative."""
    if weight.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(weight.shape)}")
    if not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
        raise ValueError(f"{name} must be finite and not negative, its smallest value is {weight.min().item()}")


def check_maps(maps: Tensor, name: str) -> None:
    """Floating maps (B, channels, *spatial) of rank 3 or more, all finite."""
    if maps.ndim < 3 or 0 in maps.shape:
        raise ValueError(f"{name} must have shape (batch, channels, *spatial), none of them 0, got {tuple(maps.shape)}")
    if not maps.is_floating_point():
        raise ValueError(f"{name} must be floating point, got dtype {maps.dtype}")
    finite = torch.isfinite(maps.detach())
    if not bool(finite.all()):
        where = tuple(int(index) for index in (~finite).nonzero()[0])
        raise ValueError(f"{name} holds {maps.detach()[where].item()} at index {where}")
