"""Source-free domain adaptation noise: labels as a model of another domain predicts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jcas.noise.base import Mask, Noise

Predictor = Callable[[Tensor], NDArray[Any]]
"""Image (channels, H, W) float32 in 0..1 -> class ids (H, W)."""


@dataclass(frozen=True, kw_only=True)
class SFDA(Noise):
    """Labels are what ``predictor`` sees in the image; the mask only says which pixels are ignored.

    It is the one noise that needs ``image``. The ``rng`` is not used: the errors are those of the model.

    Args:
        num_classes: background included.
        predictor: a model trained on the source domain, as a function of one image.
        source: what the predictor is (a run folder, a file), for the record.
    """

    predictor: Predictor
    source: str = ""

    def apply(self, mask: Mask, rng: np.random.Generator, image: Tensor | None) -> Mask:
        """Predict the labels."""
        if image is None:
            raise ValueError("sfda noise needs the image, got image=None")
        predicted = np.asarray(self.predictor(image))
        if predicted.shape != mask.shape:
            raise ValueError(f"the predictor gave shape {predicted.shape} for a mask of shape {mask.shape}")
        if predicted.min() < 0 or predicted.max() >= self.num_classes:
            raise ValueError(
                f"the predictor gave labels {predicted.min()}..{predicted.max()}, allowed are 0..{self.num_classes - 1}"
            )
        return predicted.astype(np.uint8)  # a copy: the predictor's own array stays as it is

    def parameters(self) -> dict[str, Any]:
        """Where the labels come from; the predictor itself cannot be written down."""
        return {"source": self.source}
