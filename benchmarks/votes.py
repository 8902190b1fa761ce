"""What validation images say of predictions where labels were drawn: pixels vote by their looks, no truth is needed.

Drawn labels cannot judge who has learned their habit. But their middles are mostly right, and say what a class looks
like in that image; every pixel nearby can then vote for a class by how it looks, and how often such votes are wrong is
counted in the middles. The votes are flipped labels of a kind: with their matrix T the counts of predictions against
them give those against the true classes, `M = N T^-1` (`clean_counts`), and so a Jaccard index.

It is a coarse judge: pixels on outlines look like both sides, and structures that look like their surroundings are
misjudged everywhere alike. It compares predictions of the same images, nothing else. JCAS asks looks, too, in another
form (one colour of one pixel among those of its neighbourhood; here three scales of smoothing over the whole image), so
that it may find favour here for this reason alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.ndimage import distance_transform_edt, gaussian_filter, label

from jcas.core import clean_counts, confusion_counts
from jcas.data import open_dataset
from jcas.inference import probabilities
from jcas.run import read_run
from jcas.schema import IGNORE

_SCALES = (0.0, 1.0, 2.0)  # pixels: of the smoothed images that describe a pixel
_REACH = 1 / 32  # of the image's side: the middle of the background begins so far from objects, and ends twice as far
_INNERMOST = 0.4  # of each labelled piece: its middle
_LEAST_MIDDLE = 10  # pixels
_FLOOR = 0.2  # least deviation, in deviations of the whole image


def middles(labels: NDArray[np.integer], num_classes: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where each class is surely itself, (C, H, W), and the pixels that are near enough to objects to be judged."""
    reach = max(2.0, _REACH * labels.size**0.5)
    found = np.zeros((num_classes, *labels.shape), bool)
    for index in range(1, num_classes):
        pieces, count = label(labels == index)
        for piece in range(1, count + 1):
            depth = distance_transform_edt(pieces == piece)
            found[index] |= depth >= np.quantile(depth[depth > 0], 1 - _INNERMOST)
    away = distance_transform_edt(labels == 0)
    found[0] = (away > reach) & (away <= 2 * reach)
    return found, away <= 2 * reach


def votes(image: NDArray[np.floating], middle: NDArray[np.bool_]) -> NDArray[np.int64]:  # (channels, H, W) -> (H, W)
    """The class whose middle a pixel looks most like: Gaussians of its colours at three scales, in this image."""
    maps = [gaussian_filter(channel, scale) for channel in image.astype(np.float64) for scale in _SCALES]
    looks = np.stack([(found - found.mean()) / max(found.std(), 1e-6) for found in maps]).reshape(len(maps), -1)
    likely = np.full((len(middle), looks.shape[1]), -np.inf)
    for index, own in enumerate(middle.reshape(len(middle), -1)):
        if own.sum() < _LEAST_MIDDLE:
            continue
        mean = looks[:, own].mean(1, keepdims=True)
        root = np.linalg.cholesky(np.cov(looks[:, own]) + _FLOOR**2 * np.eye(len(looks)))
        distance = (solve_triangular(root, looks - mean, lower=True) ** 2).sum(0)
        likely[index] = -distance / 2 - np.log(np.diag(root)).sum()
    return likely.argmax(0).reshape(image.shape[1:])


@dataclass
class Voted:
    """Predictions of images against the votes of their pixels."""

    counts: torch.Tensor  # (images, C, C) by predicted class and vote, near objects
    stray: torch.Tensor  # (images, C) pixels given to a class but background far from all objects
    sure: torch.Tensor  # (images, C, C) by class of a middle and vote

    def jaccard(self, images: torch.Tensor | None = None) -> float:
        """Percent, mean over the classes but background, as the votes of some images, or of all, estimate it."""
        chosen = slice(None) if images is None else images
        sure = self.sure[chosen].sum(0)
        true = clean_counts(self.counts[chosen].sum(0), sure / sure.sum(1, keepdim=True))
        true[:, 0] += self.stray[chosen].sum(0)
        both = true.diagonal()
        return 100 * float((both / (true.sum(0) + true.sum(1) - both))[1:].mean())


def lead(one: Voted, other: Voted, *, draws: int = 200, seed: int = 0) -> tuple[float, float]:
    """By how much one is ahead of the other on the same images, and the standard error (bootstrap over images)."""
    generator = torch.Generator().manual_seed(seed)
    count = len(one.counts)
    drawn = [torch.randint(count, (count,), generator=generator) for _ in range(draws)]
    leads = [one.jaccard(images) - other.jaccard(images) for images in drawn]
    return one.jaccard() - other.jaccard(), stdev(leads)


def against_votes(found: Iterable[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], num_classes: int) -> Voted:
    """Count predictions: of each image its pixels (channels, H, W), labels (H, W) and believed classes (H, W)."""
    rows = []
    for image, labels, believed in found:
        middle, near = middles(labels.numpy(), num_classes)
        vote, inside = torch.from_numpy(votes(image.numpy(), middle)), torch.from_numpy(near)
        counts = confusion_counts(believed[None], torch.where(inside, vote, IGNORE)[None], num_classes)[0]
        stray = torch.bincount(believed[~inside], minlength=num_classes)
        stray[0] = 0
        sure = torch.stack([torch.bincount(vote[own], minlength=num_classes) for own in torch.from_numpy(middle)])
        rows.append((counts.double(), stray.double(), sure.double()))
    return Voted(*(torch.stack(parts) for parts in zip(*rows, strict=True)))


@torch.inference_mode()
def voted(folder: Path) -> Voted:
    """The predictions of a run for its validation images, against the votes of their pixels."""
    run = read_run(folder)
    dataset = open_dataset(run.config.data).with_validation(run.config.validation)
    samples = (dataset.load(record, clean=False) for record in dataset.split("val"))
    found = (
        (sample.image, sample.noisy, probabilities(run.method, sample.image, run.config).argmax(0))
        for sample in samples
    )
    return against_votes(found, dataset.labels.num_classes)
