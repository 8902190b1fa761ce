"""Noise that flips every pixel on its own, by a transition matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from jcas.core.checks import check_transition
from jcas.core.transition import asymmetric, pair_flip, symmetric
from jcas.noise.base import Mask, Noise


def flip(mask: Mask, transition: Tensor, rng: np.random.Generator) -> Mask:
    """Draw each pixel's label from the row of its class, ``T[m, n] = p(noisy = n | clean = m)``.

    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> flip(np.array([[0, 1, 1]], np.uint8), swap, np.random.default_rng(0))
    array([[1, 0, 0]], dtype=uint8)
    """
    cumulative = transition.double().cumsum(1).numpy()
    cumulative /= cumulative[:, -1:]
    draws = rng.random(mask.shape)
    noisy = mask.copy()
    for label in range(len(cumulative)):
        here = mask == label
        noisy[here] = np.searchsorted(cumulative[label], draws[here], side="right")
    return noisy


class TransitionNoise(Noise):
    """Base of the flips: a subclass says its T."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_transition(self.transition, "matrix", num_classes=self.num_classes)

    @property
    def transition(self) -> Tensor:
        """The true T (C, C), float64."""
        raise NotImplementedError

    def apply(self, mask: Mask, rng: np.random.Generator, image: Tensor | None) -> Mask:
        """Flip each pixel by T."""
        return flip(mask, self.transition, rng)


@dataclass(frozen=True, kw_only=True)
class Symmetric(TransitionNoise):
    """A share ``rate`` of the pixels of each class goes to the other classes, to each the same."""

    rate: float = 0.5

    @property
    def transition(self) -> Tensor:
        """The true T (C, C), float64."""
        return symmetric(self.num_classes, self.rate)


@dataclass(frozen=True, kw_only=True)
class Asymmetric(TransitionNoise):
    """A share ``rate`` of each class goes to the other classes by random weights, fixed by ``matrix_seed``."""

    rate: float = 0.5
    matrix_seed: int = 0

    @property
    def transition(self) -> Tensor:
        """The true T (C, C), float64."""
        return asymmetric(self.num_classes, self.rate, seed=self.matrix_seed)


@dataclass(frozen=True, kw_only=True)
class PairFlip(TransitionNoise):
    """A share ``rate`` of each class goes to the next class, of the last class to the first."""

    rate: float = 0.5

    @property
    def transition(self) -> Tensor:
        """The true T (C, C), float64."""
        return pair_flip(self.num_classes, self.rate)


@dataclass(frozen=True, kw_only=True)
class Matrix(TransitionNoise):
    """Any transition matrix: ``matrix[m][n]`` is the share of class m that gets label n."""

    matrix: tuple[tuple[float, ...], ...]

    @property
    def transition(self) -> Tensor:
        """The true T (C, C), float64."""
        if len({len(row) for row in self.matrix}) > 1:
            raise ValueError(f"matrix must have rows of one length, got {self.matrix}")
        return torch.tensor(self.matrix, dtype=torch.float64)
