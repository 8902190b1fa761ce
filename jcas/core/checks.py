"""Every complaint of `jcas.core` about its arguments: it names the argument and shows the offending value."""

from __future__ import annotations

import torch
from torch import Tensor

IGNORE = 255
_ROW_TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 4e-2}
_FULL_TOLERANCE = 1e-4  # float32 rows of softmax or division sum to 1 within about 1e-6


def check_rate(rate: float) -> None:
    """A noise rate is a share of pixels: 0 <= rate < 1."""
    if not 0.0 <= rate < 1.0:  # NaN fails the comparison too
        raise ValueError(f"rate must lie in [0, 1), got {rate}")


def check_num_classes(num_classes: int) -> None:
    """Noise between classes needs two of them."""
    if not isinstance(num_classes, int) or num_classes < 2:
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
    if not transition.is_floating_point():
        raise ValueError(f"{name} must be floating point, got dtype {transition.dtype}")
    if num_classes is not None and transition.shape[0] != num_classes:
        raise ValueError(f"{name} must be {num_classes} x {num_classes}, got shape {tuple(transition.shape)}")
    sums = transition.detach().double().sum(1)
    worst = int((sums - 1).abs().argmax())
    if abs(sums[worst].item() - 1) > _ROW_TOLERANCE.get(transition.dtype, _FULL_TOLERANCE):
        raise ValueError(f"rows of {name} must sum to 1, row {worst} sums to {sums[worst].item():.6g}")


def check_prior(prior: Tensor, num_classes: int) -> None:
    """Class proportions or counts: (C,), non-negative, not all zero."""
    if prior.shape != (num_classes,):
        raise ValueError(f"prior must have shape ({num_classes},), got {tuple(prior.shape)}")
    values = prior.detach()
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()) or not bool((values > 0).any()):
        raise ValueError(f"prior must be non-negative, finite and not all zero, got {values.tolist()}")


def as_labels(noisy: Tensor, shape: torch.Size, name: str = "noisy", *, num_classes: int = IGNORE) -> Tensor:
    """The labels as int64, after making sure that each is a class or 255 = ignore and that the shape is right."""
    if noisy.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(noisy.shape)}")
    if noisy.is_floating_point() or noisy.is_complex() or noisy.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, got dtype {noisy.dtype}")
    labels = noisy.long()
    bad = ((labels < 0) | (labels >= num_classes)) & (labels != IGNORE)
    if bool(bad.any()):
        value = int(labels[bad][0])
        raise ValueError(f"{name} holds label {value}, allowed are 0..{num_classes - 1} and {IGNORE} (ignore)")
    return labels


def check_probabilities(probs: Tensor) -> None:
    """Maps (B, C, *spatial) whose channels are distributions: catches logits that were passed by mistake."""
    check_maps(probs, "probs")
    values = probs.detach()
    smallest = values.min().item()
    if smallest < -1e-4:
        raise ValueError(f"probs must not be negative (are these logits?), the smallest is {smallest:.6g}")
    sums = values.float().sum(1)
    worst = max((bound.item() for bound in sums.aminmax()), key=lambda value: abs(value - 1))
    if abs(worst - 1) > 0.05:
        raise ValueError(f"probs must sum to 1 over the classes (are these logits?), one pixel sums to {worst:.6g}")


def check_weight(weight: Tensor, shape: torch.Size, name: str = "weight") -> None:
    """Per-pixel trust of a given shape: finite, not negative."""
    if weight.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(weight.shape)}")
    bad = ~torch.isfinite(weight) | (weight < 0)
    if bool(bad.any()):
        raise ValueError(f"{name} must be finite and not negative, it holds {weight[bad][0].item()}")


def check_maps(maps: Tensor, name: str) -> None:
    """Floating maps (B, channels, *spatial) of rank 3 or more, all finite."""
    if maps.ndim < 3 or 0 in maps.shape:
        raise ValueError(f"{name} must have shape (batch, channels, *spatial), none of them 0, got {tuple(maps.shape)}")
    if not maps.is_floating_point():
        raise ValueError(f"{name} must be floating point, got dtype {maps.dtype}")
    values = maps.detach()
    if bool(values.sum().isfinite()):  # NaN and infinity would be in the sum, which takes a fraction of the time
        return
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        where = tuple(int(index) for index in (~finite).nonzero()[0])
        raise ValueError(f"{name} holds {values[where].item()} at index {where}")
