"""Overlap and surface scores of predicted masks, by the paper's rule and by the dataset rule.

Two rules are in use and they differ; both are always reported:

- **Paper's rule** (``dice``, ``jac``): per image and class, only where the *truth* contains the class; mean
  over those images, then mean over the foreground classes that occur. A class invented in an image without it
  costs nothing here.
- **Dataset rule** (``dataset_dice``, ``dataset_jac``): pixels of all images are totalled per class and
  divided once. Invented pixels count, and a class that is predicted but never true scores 0.

Pixels whose truth is 255 take part in nothing, the predicted area included (the authors' code keeps
them there).

Surface distances are those within one image or slice. For slices of NIfTI volumes `jcas evaluate` takes the voxel size
within the slice from the file and gives millimetres; for all other images it gives pixels.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite

import numpy as np
import torch
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance, compute_surface_dice
from numpy.typing import NDArray
from torch import Tensor

from jcas.schema import LabelSpace

Table = dict[str, float | None]
"""One value per foreground class name, and ``mean``; ``None`` where there was nothing to score."""

Spacing = float | Sequence[float] | None

_SURFACE = ("hd95", "assd", "nsd")


@dataclass(frozen=True)
class _ImageCounts:
    """What one image adds: its confusion counts and, on request, its surface scores per foreground class."""

    confusion: NDArray[np.int64]  # (C, C) rows = truth, columns = prediction
    surface: dict[str, tuple[float | None, ...]]


@dataclass
class SegmentationScores:
    """Collects exact pixel counts image by image and turns them into percentages at the end.

    An image is known by its id. An id that comes again with the same counts is counted once, because
    distributed samplers repeat images to fill the last round; with other counts it is an error. Sums are
    exactly rounded, so the order of the images does not change a digit.

    With ``surface=True`` MONAI adds ``hd95`` and ``assd`` (in units of ``spacing``; pixels by default) and
    ``nsd`` (percent of the surfaces within ``tolerance``), again only where the truth contains the class.
    Where the prediction misses such a class there is no distance: the image is left out of ``hd95`` and
    ``assd`` and scores 0 in ``nsd``; ``missed`` tells in what percentage of the images with the class this
    happened, since distances alone would flatter a model that finds little. Ignored pixels are cut out of
    both masks first.

    Args:
        labels: Classes to score; the background takes part in the counts but gets no row of its own.
        surface: Also compute the surface scores (slower by far).
        spacing: Size of a pixel along each axis, or one number for all; `update` takes another for its images.
        tolerance: Surface distance that still counts as right in ``nsd``, in the unit of ``spacing``.

    >>> scores = SegmentationScores(LabelSpace(("background", "vessel")))
    >>> scores.update(torch.tensor([[1, 1, 0, 1]]), torch.tensor([[1, 0, 0, 255]]), "a")
    >>> scores.compute()["jac"]
    {'vessel': 50.0, 'mean': 50.0}
    """

    labels: LabelSpace
    surface: bool = field(default=False, kw_only=True)
    spacing: Spacing = field(default=None, kw_only=True)
    tolerance: float = field(default=1.0, kw_only=True)
    _images: dict[str, _ImageCounts] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if "mean" in self.labels.foreground:
            raise ValueError(f"no class may be called 'mean', the score tables use it: {self.labels.names!r}")

    def update(
        self,
        predicted: Tensor | NDArray[np.integer],  # (*spatial) or (B, *spatial), label ids
        truth: Tensor | NDArray[np.integer],  # same shape, 255 = ignore
        ids: str | Sequence[str],  # one string: one image; a sequence: one per entry of the batch
        *,
        spacing: Spacing = None,  # of these images; None: that of the collector
    ) -> None:
        """Add one image or one batch of images."""
        predicted, truth = torch.as_tensor(predicted), torch.as_tensor(truth)
        if predicted.shape != truth.shape:
            raise ValueError(f"predicted is {tuple(predicted.shape)} but truth is {tuple(truth.shape)}, ids {ids!r}")
        if isinstance(ids, str) or predicted.ndim == 2:
            predicted, truth = predicted[None], truth[None]
        names = (ids,) if isinstance(ids, str) else tuple(ids)
        if len(names) != len(predicted):
            raise ValueError(f"{len(predicted)} images but {len(names)} ids: {names!r}")
        for name, one_predicted, one_truth in zip(names, predicted.long(), truth.long(), strict=True):
            self._add(name, self._count(one_predicted, one_truth, name, self.spacing if spacing is None else spacing))

    def compute(self) -> dict[str, Table]:
        """Tables of all scores, ready for JSON: percentages, and distances in units of ``spacing``."""
        images = list(self._images.values())
        total = sum((image.confusion for image in images), np.zeros((self.labels.num_classes,) * 2, np.int64))
        tables = {
            "dice": self._mean_table([_dice(i.confusion, only_true=True) for i in images]),
            "jac": self._mean_table([_jac(i.confusion, only_true=True) for i in images]),
            "dataset_dice": self._table(_dice(total, only_true=False)),
            "dataset_jac": self._table(_jac(total, only_true=False)),
        }
        if self.surface:
            for key in _SURFACE:
                tables[key] = self._mean_table([image.surface[key] for image in images])
            tables["missed"] = self._mean_table([_missed(image.confusion) for image in images])
        return tables

    def per_image(self) -> list[dict[str, str | Table]]:
        """One row per image in the order of arrival: its ``id`` and the tables ``jac``, ``dice``, ..."""
        rows: list[dict[str, str | Table]] = []
        for name, image in self._images.items():
            row: dict[str, str | Table] = {
                "id": name,
                "jac": self._table(_jac(image.confusion, only_true=True)),
                "dice": self._table(_dice(image.confusion, only_true=True)),
            }
            row.update({key: self._table(values) for key, values in image.surface.items()})
            rows.append(row)
        return rows

    def _add(self, name: str, counts: _ImageCounts) -> None:
        known = self._images.setdefault(name, counts)
        if not np.array_equal(known.confusion, counts.confusion):
            raise ValueError(f"two different images share the id {name!r}")

    def _count(self, predicted: Tensor, truth: Tensor, name: str, spacing: Spacing) -> _ImageCounts:
        classes = self.labels.num_classes
        judged = truth != self.labels.ignore
        kept = {"predicted": predicted[judged], "truth": truth[judged]}
        for kind, values in kept.items():
            if values.numel() and (values.min() < 0 or values.max() >= classes):
                wrong = values[(values < 0) | (values >= classes)][0].item()
                raise ValueError(f"{kind} label {wrong} in image {name!r} is not one of 0..{classes - 1}")
        pairs = kept["truth"] * classes + kept["predicted"]
        confusion = torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu().numpy()
        if not self.surface:
            return _ImageCounts(confusion, {})
        with warnings.catch_warnings():  # MONAI warns of an argument that it passes to itself
            warnings.filterwarnings("ignore", ".*always_return_as_numpy", FutureWarning)
            return _ImageCounts(confusion, self._surface_scores(predicted, truth, judged, confusion, spacing))

    def _surface_scores(
        self, predicted: Tensor, truth: Tensor, judged: Tensor, confusion: NDArray[np.int64], spacing: Spacing
    ) -> dict[str, tuple[float | None, ...]]:
        scores: dict[str, list[float | None]] = {key: [] for key in _SURFACE}
        for index in range(1, self.labels.num_classes):
            is_true, is_predicted = confusion[index].any(), confusion[:, index].any()
            values: tuple[float | None, float | None, float | None] = (None, None, 0.0 if is_true else None)
            if is_true and is_predicted:
                masks = [((image == index) & judged)[None, None] for image in (predicted, truth)]
                hd95 = compute_hausdorff_distance(*masks, include_background=True, percentile=95, spacing=spacing)
                assd = compute_average_surface_distance(
                    *masks, include_background=True, symmetric=True, spacing=spacing
                )
                nsd = compute_surface_dice(
                    *masks, include_background=True, class_thresholds=[self.tolerance], spacing=spacing
                )
                values = (hd95.item(), assd.item(), 100 * nsd.item())
                assert all(v is not None and isfinite(v) for v in values), "both surfaces exist"
            for key, value in zip(_SURFACE, values, strict=True):
                scores[key].append(value)
        return {key: tuple(found) for key, found in scores.items()}

    def _mean_table(self, rows: Sequence[Sequence[float | None]]) -> Table:
        columns = range(self.labels.num_classes - 1)
        return self._table([_mean([row[c] for row in rows]) for c in columns])

    def _table(self, values: Sequence[float | None]) -> Table:
        return {**dict(zip(self.labels.foreground, values, strict=True)), "mean": _mean(values)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known else None


def _dice(confusion: NDArray[np.int64], *, only_true: bool) -> list[float | None]:
    return _overlap(confusion, only_true=only_true, both_sides=True)


def _jac(confusion: NDArray[np.int64], *, only_true: bool) -> list[float | None]:
    return _overlap(confusion, only_true=only_true, both_sides=False)


def _overlap(confusion: NDArray[np.int64], *, only_true: bool, both_sides: bool) -> list[float | None]:
    """2 |A and B| / (|A| + |B|) or |A and B| / |A or B| of each foreground class, in percent."""
    values: list[float | None] = []
    for index in range(1, len(confusion)):
        hits, truth = int(confusion[index, index]), int(confusion[index].sum())
        areas = truth + int(confusion[:, index].sum())
        if (truth if only_true else areas) == 0:
            values.append(None)
        else:
            values.append(200 * hits / areas if both_sides else 100 * hits / (areas - hits))
    return values


def _missed(confusion: NDArray[np.int64]) -> list[float | None]:
    """100 where the prediction has nothing of a class that the truth contains, else 0."""
    return [
        (0.0 if confusion[:, index].any() else 100.0) if confusion[index].any() else None
        for index in range(1, len(confusion))
    ]
