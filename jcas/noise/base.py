"""What every label noise is: a function of one mask and one random generator."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from jcas.core.checks import IGNORE, check_num_classes

Mask = NDArray[np.uint8]  # (H, W), class ids and 255 = ignore
Region = NDArray[np.bool_]  # (H, W)

EIGHT_NEIGHBOURS = ndimage.generate_binary_structure(2, 2)


def rng_for(seed: int, image_id: str, *, purpose: str = "noise") -> np.random.Generator:
    """The generator of one image: the same on every machine, whatever the order or the number of workers.

    >>> rng_for(0, "frame001").integers(1000), rng_for(0, "frame001").integers(1000)
    (np.int64(286), np.int64(286))
    """
    digest = hashlib.blake2b("\0".join((str(seed), purpose, image_id)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


@dataclass(frozen=True, kw_only=True)
class Noise(ABC):
    """A label noise: ``noise(mask, rng) -> mask``; pure, and 255 stays 255 wherever it was and nowhere else.

    A subclass is a frozen dataclass of its parameters with one method, `apply`. ``image`` is for noise that depends on
    what the picture shows (`SFDA`); all others ignore it.
    """

    num_classes: int

    def __post_init__(self) -> None:
        check_num_classes(self.num_classes)
        if self.num_classes > IGNORE:
            raise ValueError(f"num_classes must be at most {IGNORE} (255 means ignore), got {self.num_classes}")

    def __call__(self, mask: Mask, rng: np.random.Generator, *, image: Tensor | None = None) -> Mask:
        """A corrupted copy of ``mask``."""
        if mask.ndim != 2 or mask.dtype != np.uint8:
            raise ValueError(f"a mask must be (H, W) of uint8, got shape {mask.shape} of {mask.dtype}")
        ignored = mask == IGNORE
        known = mask[~ignored]
        if known.size and known.max() >= self.num_classes:
            raise ValueError(f"mask holds label {known.max()}, allowed are 0..{self.num_classes - 1} and {IGNORE}")
        noisy = self.apply(mask, rng, image)
        noisy[ignored] = IGNORE
        return noisy

    @abstractmethod
    def apply(self, mask: Mask, rng: np.random.Generator, image: Tensor | None) -> Mask:
        """A new mask of class ids; what it says at ignored pixels does not matter."""

    @property
    def transition(self) -> Tensor | None:
        """The true T (C, C) where the noise has one: it flips pixels independently."""
        return None

    def parameters(self) -> dict[str, Any]:
        """The settings that make this noise, as plain values for a report."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "num_classes"}


def components(mask: Mask, label: int) -> Iterator[Region]:
    """The 8-connected pieces of one class, each as a full-size region, in reading order."""
    pieces, count = ndimage.label(mask == label, structure=EIGHT_NEIGHBOURS)
    for piece in range(1, count + 1):
        yield pieces == piece


def check_share(name: str, value: float) -> None:
    """A probability or share: 0 <= value <= 1."""
    if not 0 <= value <= 1:  # NaN fails the comparison too
        raise ValueError(f"{name} must lie in [0, 1], got {value}")
