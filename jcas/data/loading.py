"""Batches of a dataset, in an order and with views that depend on nothing but the seed.

The order of epoch e is a function of (seed, e). The view of an image in epoch e is a function of (seed, e, image id):
not of the number of workers or processes, of other images, or of what was drawn before. So a run that resumes at
epoch e sees what the uninterrupted run would have seen.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from monai.data import get_track_meta, set_track_meta
from monai.transforms import Compose
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from jcas.data.augmentation import AUGMENTATIONS, Augmentation, Item, evaluation_view, training_view
from jcas.data.dataset import Dataset, Record
from jcas.data.resize import resize_image, resize_labels
from jcas.schema import IGNORE, Batch, Sample


@dataclass(frozen=True)
class Preparation:
    """From a file's own size to what the network sees."""

    size: tuple[int, int] | None = None  # resize the whole image; None keeps its own size
    crop: tuple[int, int] | None = None  # random window in training; smaller images are padded with ignored pixels
    augmentation: Augmentation = "none"  # flip: horizontal, p = 0.5 (the paper's); strong: turn, zoom, light, noise too

    def __post_init__(self) -> None:
        for name in ("size", "crop"):
            value = getattr(self, name)
            if value is not None and (len(value) != 2 or min(value) < 1):
                raise ValueError(f"{name} must be (rows, columns) of at least 1, got {value}")
        if self.augmentation not in AUGMENTATIONS:
            raise ValueError(f"unknown augmentation {self.augmentation!r}, choose one of {', '.join(AUGMENTATIONS)}")


def training_loader(
    dataset: Dataset,
    *,
    preparation: Preparation,
    batch_size: int,  # of this process
    seed: int,
    workers: int = 0,
    split: str = "train",
    rank: int = 0,
    world_size: int = 1,
    use_clean_as_labels: bool = False,
    cache: bool | float = False,
    repeat_threshold: float | None = None,
) -> DataLoader[Batch]:
    """Shuffled batches of random views; call ``loader.sampler.set_epoch(e)`` before epoch e (Lightning does).

    A batch never carries ``clean``. ``use_clean_as_labels`` trains on the true labels instead (the upper bound) and
    drops the weights, which speak of the noisy ones. ``cache`` keeps all (True) or a share (0..1) of the loaded and
    resized images in memory, read before the first batch, as far as memory goes. Sharding: see :class:`EpochSampler`.
    ``repeat_threshold`` draws images of rare classes more often: see :func:`repeat_factors`.
    """
    records = _records(dataset, split)
    if use_clean_as_labels:
        missing = [record.id for record in records if record.clean is None]
        if missing:
            raise ValueError(f"{dataset.root}: no true labels of {missing[0]!r} in clean/ ({len(missing)} such images)")
    if preparation.size is None and preparation.crop is None:
        _expect_one_size(dataset, records)
    load = _Load(dataset, preparation.size, clean=False, use_clean_as_labels=use_clean_as_labels)
    view = training_view(augmentation=preparation.augmentation, crop=preparation.crop)
    views = _Views(records, load, view, seed=seed, cache=cache, processes=world_size)
    sampler = EpochSampler(
        len(records),
        seed=seed,
        rank=rank,
        world_size=world_size,
        repeats=None if repeat_threshold is None else repeat_factors(views.classes(), threshold=repeat_threshold),
    )
    return DataLoader(
        views,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=Batch.collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        # Its own generator: iterating must not draw from the global one that drop-out uses.
        generator=torch.Generator().manual_seed(seed),
    )


def evaluation_loader(
    dataset: Dataset,
    *,
    preparation: Preparation,
    batch_size: int,
    split: str,
    clean: bool,
    use_clean_as_labels: bool = False,
    workers: int = 0,
    world_size: int = 1,
    cache: bool | float = False,
) -> DataLoader[Batch]:
    """Whole images (``size`` applies; ``crop`` and ``augmentation`` do not) in the order of the records.

    A batch ends early where the image size changes, so images of any size can be evaluated without padding. With
    ``use_clean_as_labels``, as in training, labels are the true ones where there are any.
    """
    records = _records(dataset, split)
    load = _Load(dataset, preparation.size, clean=clean, use_clean_as_labels=use_clean_as_labels)
    if preparation.size is None:
        sizes = [dataset.size(record) for record in records]
    else:
        sizes = [preparation.size] * len(records)
    return DataLoader(
        _Views(records, load, evaluation_view(), seed=0, cache=cache, processes=world_size),
        batch_sampler=_EqualSizeBatches(sizes, batch_size),
        collate_fn=Batch.collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(0),
    )


def repeat_factors(classes: Sequence[frozenset[int]], *, threshold: float) -> list[float]:
    """How often each image shall come, from the classes that each shows (repeat-factor sampling).

    A class shown by a share f of the images asks for max(1, sqrt(threshold / f)); an image obeys the largest of its
    classes (Gupta et al., LVIS, CVPR 2019).

    >>> repeat_factors([frozenset({0}), frozenset({0}), frozenset({0}), frozenset({0, 1})], threshold=1.0)
    [1.0, 1.0, 1.0, 2.0]
    """
    shown = Counter(c for image in classes for c in image)
    asked = {c: max(1.0, math.sqrt(threshold * len(classes) / count)) for c, count in shown.items()}
    return [max((asked[c] for c in image), default=1.0) for image in classes]


def epoch_order(count: int, *, seed: int, epoch: int, repeats: Sequence[float] | None = None) -> list[int]:
    """The order in which an epoch visits ``count`` images, each once or in proportion to its repeat factor.

    A factor of 1.3 is rounded up in 30 % of the epochs. The repeated list is shuffled and cut to ``count``, so that an
    epoch is as long as without repeats. An image that comes twice shows the same view twice.

    >>> sorted(epoch_order(4, seed=0, epoch=1))
    [0, 1, 2, 3]
    """
    generator = torch.Generator().manual_seed(_seed(seed, epoch, "order"))
    if repeats is None:
        return torch.randperm(count, generator=generator).tolist()
    factors = torch.tensor(repeats, dtype=torch.float64)
    times = (factors + torch.rand(count, generator=generator, dtype=torch.float64)).floor().long()
    repeated = torch.arange(count).repeat_interleave(times)
    order = torch.randperm(len(repeated), generator=generator)
    return repeated[order][:count].tolist()


class EpochSampler(Sampler[tuple[int, int]]):
    """Yields (epoch, index) pairs of this process.

    Process r takes every world_size-th image of the epoch's order from r on: two processes of batch 4 see together what
    one process of batch 8 sees. So that all processes get equally many, the order is filled from its start up to a
    multiple of world_size.
    """

    def __init__(
        self,
        count: int,
        *,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        repeats: Sequence[float] | None = None,
    ) -> None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"cannot shard: rank={rank}, world_size={world_size}")
        self.count = count
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.repeats = repeats
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration runs through."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.count / self.world_size)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        order = epoch_order(self.count, seed=self.seed, epoch=self.epoch, repeats=self.repeats)
        total = len(self) * self.world_size  # a multiple of world_size, so strides never cross global batches
        filled = [order[position % self.count] for position in range(total)]
        return ((self.epoch, index) for index in filled[self.rank :: self.world_size])


_MOST_PIXELS = 1 << 22  # of an evaluation batch of several images


class _EqualSizeBatches(Sampler[list[tuple[int, int]]]):
    """Consecutive images of one size, at most ``batch_size`` of them and few if they are large; the epoch is always 0.

    Validation looks at whole images, however small the windows of the training are.
    """

    def __init__(self, sizes: list[tuple[int, int]], batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batches: list[list[tuple[int, int]]] = []
        for index, size in enumerate(sizes):
            most = min(batch_size, max(1, _MOST_PIXELS // (size[0] * size[1])))
            fits = index > 0 and size == sizes[index - 1] and len(self.batches[-1]) < most
            if fits:
                self.batches[-1].append((0, index))
            else:
                self.batches.append([(0, index)])

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)


class _Load:
    """Record to item: read, check and resize; the part that never changes and may be cached."""

    def __init__(
        self, dataset: Dataset, size: tuple[int, int] | None, *, clean: bool, use_clean_as_labels: bool
    ) -> None:
        self.dataset = dataset
        self.size = size
        self.clean = clean
        self.use_clean_as_labels = use_clean_as_labels

    def __call__(self, record: Record) -> Item:
        sample = self.dataset.load(record, clean=self.clean or self.use_clean_as_labels)
        if self.use_clean_as_labels:
            assert sample.clean is not None
            sample = replace(sample, noisy=sample.clean, clean=sample.clean if self.clean else None, weight=None)
        item: Item = {"id": sample.id, "group": sample.group, "image": sample.image}
        if self.size is not None:
            item["image"] = resize_image(sample.image, self.size)
        # Labels fit into a byte (class ids and 255): an eighth of the memory in the cache.
        planes = {"noisy": sample.noisy.byte(), "weight": sample.weight}
        planes["clean"] = None if sample.clean is None else sample.clean.byte()
        for key, plane in planes.items():
            if plane is not None:
                item[key] = (plane if self.size is None else resize_labels(plane, self.size))[None]
        return item


class _Views(TorchDataset[Any]):  # Any: torch types a loader by its items, we by its batches
    """Item number ``index`` as epoch ``epoch`` sees it; the first ``cached`` items are held in memory.

    The cache is filled here, before workers start, so that they share it. MONAI's CacheDataset would do the same but
    hide the one clear line about a bad file behind its own error.
    """

    def __init__(
        self,
        records: list[Record],
        load: _Load,
        view: Compose,
        *,
        seed: int,
        cache: bool | float,
        processes: int = 1,
    ) -> None:
        if not 0 <= cache <= 1:
            raise ValueError(f"cache must be a share of the images, 0..1, got {cache}")
        self.records = records
        self.load = load
        self.view = view
        self.seed = seed
        self.cached = _within_memory(load, records[: round(cache * len(records))], processes)

    def __len__(self) -> int:
        return len(self.records)

    def _item(self, index: int) -> Item:
        return self.cached[index] if index < len(self.cached) else self.load(self.records[index])

    def classes(self) -> list[frozenset[int]]:
        """Classes that each image shows by the labels it is trained on; reads what is not in memory."""
        shown = (self._item(index)["noisy"].unique().tolist() for index in range(len(self)))
        return [frozenset(values) - {IGNORE} for values in shown]

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        epoch, index = key
        item = self._item(index)
        self.view.set_random_state(seed=_seed(self.seed, epoch, item["id"]))
        with _plain_tensors():
            seen = self.view(item)
        return Sample(
            image=seen["image"],
            noisy=seen["noisy"][0],
            id=seen["id"],
            clean=seen["clean"][0] if "clean" in seen else None,
            weight=seen["weight"][0] if "weight" in seen else None,
            group=seen["group"],
        )


def _within_memory(load: _Load, records: list[Record], processes: int) -> list[Item]:
    """As many items as fit into a quarter of the machine's memory, which the processes of a run share."""
    budget = _machine_memory() / 4 / processes
    items: list[Item] = []
    for record in records:
        item = load(record)
        budget -= sum(value.nbytes for value in item.values() if isinstance(value, torch.Tensor))
        if budget < 0:
            print(f"jcas: {len(items)} of {len(records)} images stay in memory, others are read anew", file=sys.stderr)
            break
        items.append(item)
    return items


def _machine_memory() -> float:
    """Bytes of it, or of the container's share; without end where nobody tells."""
    found = math.inf
    with suppress(AttributeError, OSError, ValueError):
        found = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):  # "max" where there is no limit
        found = min(found, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return found


@contextmanager
def _plain_tensors() -> Iterator[None]:
    """MONAI without the history that it keeps of every transform: the same values in a third of the time."""
    before = get_track_meta()
    set_track_meta(False)
    try:
        yield
    finally:
        set_track_meta(before)


def _records(dataset: Dataset, split: str) -> list[Record]:
    records = dataset.split(split)
    if not records:
        raise ValueError(f"{dataset.root}: the dataset {dataset.name} has no {split} images")
    return records


def _expect_one_size(dataset: Dataset, records: list[Record]) -> None:
    first = dataset.size(records[0])
    for record in records:
        if dataset.size(record) != first:
            sizes = [" x ".join(map(str, size)) for size in (first, dataset.size(record))]
            raise ValueError(
                f"{dataset.root}: images differ in size ({records[0].id}: {sizes[0]}, {record.id}: {sizes[1]}); "
                "set --size or --crop"
            )


def _seed(seed: int, epoch: int, name: str) -> int:
    """32 bits that depend on all three; neighbouring seeds and epochs share nothing."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{name}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")
