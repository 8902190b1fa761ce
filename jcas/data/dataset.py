"""A dataset is a list of records (where the files lie, which split) and a way to load one as a Sample."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from jcas.data import files
from jcas.schema import IGNORE, LabelSpace, Sample

SPLITS = ("train", "val", "test")
_PROGRESS_FROM = 200  # files; below this the bar would only flash


@dataclass(frozen=True)
class Record:
    """Where one image and its labels lie; a slice of a volume is a record of its own."""

    id: str
    image: Path
    noisy: Path | None  # labels to train on; None: an image that nobody labelled
    clean: Path | None  # true labels, for evaluation only; None: only `noisy` exists
    weight: Path | None
    split: str
    group: str  # images of one group (patient, volume, video) never part between splits
    slice_index: int | None = None


class Reader(Protocol):
    """How the files of one layout become tensors."""

    def size(self, record: Record) -> tuple[int, int]:
        """Rows and columns of the loaded image, without decoding it."""

    def image(self, record: Record, *, intensity: tuple[float, float] | None) -> Tensor:
        """The image, (channels, H, W) float32 in 0..1."""

    def mask(self, path: Path, record: Record, *, labels: LabelSpace) -> Tensor:
        """The labels at ``path``, (H, W) int64, every value a class id or 255."""


@dataclass(frozen=True)
class FileReader:
    """Images and masks as plain files, the mask holding ``values[c]`` where class ``c`` is.

    Without ``values`` the mask holds the class ids themselves. ``ignore`` (and 255, unless it is the value of a class)
    becomes 255.
    """

    values: tuple[int, ...] = ()
    ignore: int | None = None

    def size(self, record: Record) -> tuple[int, int]:
        """Rows and columns of the loaded image, without decoding it."""
        return files.image_size(record.image)

    def image(self, record: Record, *, intensity: tuple[float, float] | None) -> Tensor:
        """The image, (channels, H, W) float32 in 0..1."""
        return files.read_image(record.image, intensity=intensity, slice_index=record.slice_index)

    def mask(self, path: Path, record: Record, *, labels: LabelSpace) -> Tensor:
        """The labels at ``path``, (H, W) int64, every value a class id or 255."""
        stored = files.read_mask(path, slice_index=record.slice_index)
        values = self.values or tuple(range(labels.num_classes))
        meaning = {IGNORE: IGNORE} | {value: c for c, value in enumerate(values)}
        if self.ignore is not None:
            meaning[self.ignore] = IGNORE
        present = files.distinct(stored)
        for value in present:
            if value not in meaning:
                allowed = f"{values[0]}..{values[-1]}" if not self.values else ", ".join(map(str, values))
                ignored = ", ".join(str(v) for v in meaning if meaning[v] == IGNORE) or "none"
                raise ValueError(f"{path}: label {value} is not allowed (classes: {allowed}; ignore: {ignored})")
        if all(meaning[value] == value for value in present):
            return stored
        mask = torch.empty_like(stored)
        for value in present:
            mask[stored == value] = meaning[value]
        return mask


_FEWEST_TO_PART = 16


@dataclass(frozen=True)
class Dataset:
    """Images with labels that may be wrong, split into train, val and test."""

    name: str
    root: Path
    labels: LabelSpace
    channels: int
    records: tuple[Record, ...]
    trusted: frozenset[str] = frozenset()  # ids whose training labels are known to be right
    intensity: tuple[float, float] | None = None  # stored values that become 0 and 1; None: see files.read_image
    reader: Reader = field(default=FileReader())

    def split(self, name: str) -> list[Record]:
        """The records of ``train``, ``val`` or ``test``, in the order of their ids."""
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}, choose one of {', '.join(SPLITS)}")
        return [record for record in self.records if record.split == name]

    def hold_out(self, groups: Collection[str]) -> Dataset:
        """The same dataset with these groups (patients, volumes, videos) of the training split moved to ``val``."""
        free = {record.group for record in self.split("train")}
        for group in groups:
            if group not in free:
                nearest = difflib.get_close_matches(group, free, n=1)
                some = ", ".join(sorted(free)[:8]) + (", ..." if len(free) > 8 else "")
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"these are: {some}"
                raise ValueError(f"{self.root}: {group!r} is no group of the training images ({hint})")
        if groups and free == set(groups):
            raise ValueError(f"{self.root}: validation would take every training image")
        moved = [replace(r, split="val") if r.group in groups and r.split == "train" else r for r in self.records]
        return replace(self, records=tuple(moved))

    def with_validation(self, share: float) -> Dataset:
        """The same dataset, with about this share of the training images held out as ``val`` where it has none.

        Whole groups, always the same ones, as many as come nearest to the share, at least the smallest and never all of
        them; fewer than 16 images, or a single group, are left alone.
        """
        training = self.split("train")
        if self.split("val") or len(training) < _FEWEST_TO_PART:
            return self
        sizes = Counter(record.group for record in training)
        names, wanted = sorted(sizes), share * len(training)
        held: list[str] = []
        for index in np.random.default_rng(0).permutation(len(names)):
            images = sum(sizes[group] for group in held)
            nearer = abs(images + sizes[names[index]] - wanted) < abs(images - wanted)
            if nearer and len(held) + 1 < len(names):
                held.append(names[index])
        if not held and share > 0 and len(names) > 1:
            held = [min(names, key=sizes.__getitem__)]
        return self.hold_out(held) if held else self

    def truth_is_clean(self, split: str = "test") -> bool:
        """Whether evaluation on this split sees true labels, not just the (maybe noisy) training labels."""
        records = self.split(split)
        return bool(records) and all(r.clean is not None or r.id in self.trusted for r in records)

    def size(self, record: Record) -> tuple[int, int]:
        """Rows and columns of an image, without decoding it."""
        return self.reader.size(record)

    def pixel_size(self, record: Record) -> tuple[float, float] | None:
        """Millimetres between rows and between columns where the file knows them (NIfTI), else None."""
        return None if record.slice_index is None else files.pixel_size(record.image)

    def load(self, record: Record, *, clean: bool) -> Sample:
        """Read one record at its own size and check it.

        ``clean=False`` never opens the true labels. ``clean=True`` gives them; where a dataset has none, evaluation
        must make do with the training labels (see :meth:`truth_is_clean`). An unlabelled record is all 255.
        """
        image = self.reader.image(record, intensity=self.intensity)
        if image.shape[0] != self.channels:
            raise ValueError(
                f"{record.image}: {image.shape[0]} channels, but the images of {self.name} have {self.channels}"
            )
        if record.noisy is None:
            noisy = torch.full(image.shape[1:], IGNORE)
        else:
            noisy = self._mask(record.noisy, record, image)
        truth = None
        if clean:
            truth = noisy if record.clean is None else self._mask(record.clean, record, image)
        weight = None
        if record.weight is not None:
            weight = files.read_weight(record.weight, slice_index=record.slice_index)
            _expect_same_size(record.weight, weight, record.image, image)
        return Sample(image=image, noisy=noisy, id=record.id, clean=truth, weight=weight, group=record.group)

    def stored_labels(self, record: Record, *, clean: bool) -> Tensor:  # (H, W) int64
        """Labels to train on at their own size, 255 where they weigh nothing, without decoding the image.

        With ``clean`` the true ones, where there are any; weights speak of the others.
        """
        path = record.clean if clean and record.clean is not None else record.noisy
        if path is None:
            return torch.full(self.size(record), IGNORE)
        mask = self.reader.mask(path, record, labels=self.labels)
        if record.weight is None or clean:
            return mask
        weight = files.read_weight(record.weight, slice_index=record.slice_index)
        return mask.masked_fill(weight == 0, IGNORE)

    def _mask(self, path: Path, record: Record, image: Tensor) -> Tensor:
        mask = self.reader.mask(path, record, labels=self.labels)
        _expect_same_size(path, mask, record.image, image)
        return mask


def check(dataset: Dataset, *, use_clean_as_labels: bool = False) -> list[str]:
    """Read every file once and raise the first error, so that training fails before it starts, not in hour three.

    Returns the names of classes that no training label shows: a model cannot learn them. It is an error when the
    training labels show no class at all.
    """
    seen: set[int] = set()
    console = Console(stderr=True)
    records = track(
        dataset.records,
        description=f"checking {dataset.name}",
        console=console,
        transient=True,
        disable=not console.is_terminal or len(dataset.records) <= _PROGRESS_FROM,
    )
    for record in records:
        sample = dataset.load(record, clean=True)
        if record.split == "train":
            labels = sample.clean if use_clean_as_labels else sample.noisy
            assert labels is not None
            seen |= set(files.distinct(labels))
    seen -= {IGNORE}
    if dataset.split("train") and not seen:
        raise ValueError(f"{dataset.root}: every pixel of the training labels is ignored, there is nothing to learn")
    return [name for index, name in enumerate(dataset.labels.names) if index not in seen]


def _expect_same_size(path: Path, tensor: Tensor, image_path: Path, image: Tensor) -> None:
    if tensor.shape[-2:] != image.shape[-2:]:
        sizes = [" x ".join(map(str, t.shape[-2:])) for t in (tensor, image)]
        raise ValueError(f"{path}: size {sizes[0]}, but its image {image_path.name} has {sizes[1]} (rows x columns)")
