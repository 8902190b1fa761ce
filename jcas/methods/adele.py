"""ADELE: stop believing the labels of a class when the model begins to memorise them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import OptimizeWarning, curve_fit
from torch import Tensor, nn
from torch.nn import functional

from jcas.methods.base import AUXILIARY_WEIGHT, Method, resized, summed_over_processes
from jcas.methods.losses import pixel_cross_entropy, trust, trusted_mean
from jcas.schema import IGNORE, Batch

FEWEST_POINTS = 4  # one more than the curve has parameters
_SLOW_START = 0.1
_SMALLEST_SIDE = 32  # of the images that models take


def learning_curve(t: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
    """How the training IoU of a class rises: a (1 - exp(-t^b / c))."""
    return a * (1 - np.exp(-(t**b) / c))


def curve_slope(t: float, a: float, b: float, c: float) -> float:
    """Its slope: a b t^(b-1) / c exp(-t^b / c)."""
    return a * b * t ** (b - 1) / c * float(np.exp(-(t**b) / c))


def fitted_curve(history: Sequence[float]) -> tuple[float, float, float] | None:
    """Parameters (a, b, c) of the learning curve through the IoU of epochs 1, 2, ...; None if it cannot be fitted.

    a and b lie in [0, 1], c above 0; the last epoch counts ten times as much as the first.
    """
    epochs = np.arange(1, len(history) + 1, dtype=float)
    deviation = np.geomspace(1, 0.1, len(history))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)  # a perfect fit has no covariance
            found, _ = curve_fit(
                learning_curve,
                epochs,
                np.asarray(history, dtype=float),
                p0=(0.5, 0.5, 1.0),
                sigma=deviation,
                bounds=([0, 0, 1e-6], [1, 1, np.inf]),
            )
    except (RuntimeError, ValueError):  # no convergence, or values that are not finite
        return None
    a, b, c = (float(value) for value in found)
    return a, b, c


def memorising(history: Sequence[float], *, threshold: float) -> bool:
    """Whether the curve has flattened: its slope has lost more than ``threshold`` of that of its first epoch.

    A slow start (epochs before the first rise of 0.1 in IoU) is cut off; if there is no such rise, nothing is. A class
    that has never reached 0.1 has not been learnt, let alone memorised.
    """
    rises = [k for k, (now, then) in enumerate(zip(history[1:], history, strict=False)) if now - then >= _SLOW_START]
    steep = list(history[rises[0] :]) if rises else list(history)
    if len(steep) < FEWEST_POINTS or max(steep) < _SLOW_START:
        return False
    fitted = fitted_curve(steep)
    if fitted is None:
        return False
    first, last = curve_slope(1, *fitted), curve_slope(len(steep), *fitted)
    return first > 0 and abs(first - last) / first > threshold


def relabelled(
    noisy: Tensor,  # (B, H, W) given labels
    probs: Tensor,  # (B, C, H, W)
    flattened: Tensor,  # (C,) bool, classes whose labels may change
    *,
    confidence: float,
) -> Tensor:  # (B, H, W)
    """Labels with confident predictions in place of the given ones, between background and flattened classes.

    A label changes only from and to background or a flattened class, only to a class that its image shows by the given
    labels, and only where the prediction is surer than ``confidence``.
    """
    changeable = flattened.clone()
    changeable[0] = True
    surest, believed = probs.max(1)
    valid = noisy != IGNORE
    given = noisy.where(valid, 0)
    present = functional.one_hot(given, probs.shape[1]).bool() & valid[..., None]
    shown = present.flatten(1, 2).any(1)  # (B, C)
    in_image = shown.gather(1, believed.flatten(1)).view_as(believed)
    change = valid & changeable[given] & changeable[believed] & in_image & (surest > confidence)
    return torch.where(change & flattened.any(), believed, noisy)


class ADELE(Method):
    r"""Adaptive early-learning correction: relabel a class from the moment its learning curve flattens.

    Liu et al., Adaptive Early-Learning Correction for Segmentation from Noisy Annotations, CVPR 2022. For each class
    the IoU of predictions with given labels is recorded every epoch and :math:`f(t) = a (1 - e^{-t^b / c})` fitted;
    when :math:`|f'(1) - f'(t)| / f'(1)` exceeds ``trigger`` the class is corrected (`relabelled`) from then on.

    .. math:: L = \frac1S \sum_s [CE(P_s, Y) + \lambda\,KL(P_s \| \bar P)], \qquad \bar P = \frac1S \sum_s P_s

    over S sizes of the image; KL counts where some class of :math:`\bar P` exceeds ``agreement``.

    Learns: the model. ``trigger`` 0.9, ``confidence`` 0.7 (0.8 for natural images), ``scales`` 0.7, 1, 1.5,
    ``consistency_weight`` 1 and ``agreement`` 0.8 are the paper's. Differs from the original: labels are corrected in
    each step from the predictions of that step (there once in ten epochs, from stored predictions), because crops and
    flips make every epoch's labels new ones; a class whose IoU with the labels never reaches 0.1, as rare classes of
    heavily flipped labels, is never corrected; KL is masked by pixel, as the paper says (its code: by image); softmax
    temperature 1 (its code: 3). ``scales=[1]`` is a third of the cost.
    """

    paper = "Liu et al., CVPR 2022"
    needs = "images at 3 sizes"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        *,
        trigger: float = 0.9,
        confidence: float = 0.7,
        scales: Sequence[float] = (0.7, 1.0, 1.5),
        consistency_weight: float = 1.0,
        agreement: float = 0.8,
    ) -> None:
        super().__init__(model, num_classes)
        if not scales or min(scales) <= 0:
            raise ValueError(f"scales must be positive, got {scales}")
        self.trigger = trigger
        self.confidence = confidence
        self.scales = tuple(scales)
        self.consistency_weight = consistency_weight
        self.agreement = agreement
        self.history: list[list[float]] = []  # training IoU: epochs x classes
        self.flattened: Tensor
        self.overlaps: Tensor
        self.register_buffer("flattened", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("overlaps", torch.zeros(2, num_classes, dtype=torch.float64))  # of this epoch: and, or

    def get_extra_state(self) -> Tensor:
        """The learning curves, which grow; saved with the weights."""
        return torch.tensor(self.history, dtype=torch.float64).reshape(-1, self.num_classes)

    def set_extra_state(self, state: Tensor) -> None:
        """The learning curves from a checkpoint."""
        self.history = state.tolist()

    def start_epoch(self, epoch: int) -> None:
        """Start this epoch's counts."""
        self.overlaps.zero_()

    def end_epoch(self, epoch: int) -> None:
        """Add a point to every curve and see which ones have flattened."""
        both, either = self.overlaps
        self.history.append((both / either.clamp_min(1)).tolist())
        for c in range(1, self.num_classes):
            if not self.flattened[c] and memorising([row[c] for row in self.history], threshold=self.trigger):
                self.flattened[c] = True

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy to the labels as corrected now, at several sizes, and agreement between the sizes."""
        size, counts = batch.noisy.shape[1:], trust(batch.noisy, batch.weight)
        outputs = [self.model(_scaled(batch.image, scale)) for scale in self.scales]
        logits = [resized(output.logits, size).float() for output in outputs]
        probs = torch.stack([each.softmax(1) for each in logits])
        mean = probs.mean(0).clamp(1e-3, 1 - 1e-3)
        labels = self._corrected(batch, mean.detach(), counts)
        losses = [trusted_mean(pixel_cross_entropy(each, labels), counts) for each in logits]
        parts = {"class_loss": torch.stack(losses).mean()}
        loss = parts["class_loss"]
        if len(self.scales) > 1:
            divergence = (probs * (probs.clamp_min(1e-10).log() - mean.log())).sum(2).mean(0)  # (B, H, W)
            sure = (mean.amax(1) > self.agreement).detach()
            parts["consistency"] = (divergence * sure).mean()
            loss = loss + self.consistency_weight * parts["consistency"]
        auxiliary = [
            trusted_mean(pixel_cross_entropy(resized(output.auxiliary.logits, size), labels), counts)
            for output in outputs
            if output.auxiliary is not None
        ]
        if auxiliary:
            parts["auxiliary_loss"] = torch.stack(auxiliary).mean()
            loss = loss + AUXILIARY_WEIGHT * parts["auxiliary_loss"]
        return {"loss": loss, **parts}

    @torch.no_grad()
    def _corrected(self, batch: Batch, probs: Tensor, counts: Tensor) -> Tensor:
        """Labels to train on; counts the overlap of predictions and given labels on the way."""
        given = batch.noisy.where(counts > 0, IGNORE)
        labelled = (given != IGNORE).flatten()
        true = functional.one_hot(given.flatten()[labelled], self.num_classes).bool()
        found = functional.one_hot(probs.argmax(1).flatten()[labelled], self.num_classes).bool()
        overlap = torch.stack([(true & found).sum(0), (true | found).sum(0)]).double()
        self.overlaps += summed_over_processes(overlap)
        return relabelled(given, probs, self.flattened, confidence=self.confidence)


def _scaled(images: Tensor, scale: float) -> Tensor:
    height, width = (max(round(side * scale), _SMALLEST_SIDE) for side in images.shape[2:])
    return resized(images, (height, width))
