"""Read a folder of images and masks as a dataset.

::

    images/       one file per image
    masks/        labels to train on, maybe noisy; same names, any image suffix
    clean/        true labels, evaluation only (optional; holds all images of a split or none)
    weights/      trust per pixel, 0..1 (optional; an image without one is fully trusted)
    split.csv     name[,split][,group]; `patient` counts as `group`; a group lies in one split (optional)
    dataset.yaml  see `Description` (optional)

A NIfTI volume ``case1.nii.gz`` gives one record per slice, ``case1#000`` and so on, in the group ``case1``.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from jcas.data import files
from jcas.data.dataset import SPLITS, Dataset, FileReader, Record
from jcas.data.description import read_description
from jcas.schema import IGNORE, LabelSpace

FRACTIONS = (0.7, 0.1, 0.2)
_MOST_INFERRED_CLASSES = 64  # more different labels than this are grey values, not classes

Channel = Annotated[int, Field(ge=0, le=255)]


class Description(BaseModel):
    """The keys of ``dataset.yaml``; all are optional, an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    classes: tuple[str, ...] | None = None  # background first; without it: 0 .. the highest label of the masks
    colours: tuple[tuple[Channel, Channel, Channel], ...] = ()
    values: tuple[int, ...] = ()  # value of each class in the files, for example [0, 255]; default 0, 1, 2, ...
    ignore: int | None = None  # value of pixels that nobody judged; 255 is one, too, unless it is that of a class
    trusted: tuple[str, ...] = ()  # ids (of an image or of a whole volume) whose masks are known to be right
    intensity: tuple[float, float] | None = None  # stored image values that become 0 and 1


def read_folder(path: Path | str, *, seed: int = 0, fractions: tuple[float, float, float] = FRACTIONS) -> Dataset:
    """Read the layout above; only headers, and masks when classes must be inferred, are opened here.

    Args:
        path: the folder that holds ``images/`` and ``masks/``.
        seed: of the split, where ``split.csv`` gives none; the same on every machine.
        fractions: of train, val and test in a seeded split, counted in groups.
    """
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    description = read_description(root / "dataset.yaml", Description)
    _expect_consistent(root / "dataset.yaml", description)
    images = _list(root / "images")
    masks = _list(root / "masks")
    clean = _list(root / "clean", optional=True)
    weights = _list(root / "weights", optional=True)
    _match(root, images, masks, clean, weights)
    splits, groups = _read_split(root / "split.csv", images)
    if not splits:
        splits = _seeded_split(groups, seed=seed, fractions=fractions)
    _expect_whole_splits(root, images, clean, splits)

    records = []
    for name, image in images.items():
        slices: list[int | None] = [None]
        if files.is_volume(image):
            slices = list(range(files.slice_count(image)))
        for companion in (masks[name], clean.get(name), weights.get(name)):
            _expect_same_slices(image, companion)
        records += [
            Record(
                id=name if index is None else f"{name}#{index:03d}",
                image=image,
                noisy=masks[name],
                clean=clean.get(name),
                weight=weights.get(name),
                split=splits[name],
                group=groups[name],
                slice_index=index,
            )
            for index in slices
        ]
    return Dataset(
        name=description.name or root.resolve().name,
        root=root,
        labels=_label_space(root, description, [*masks.values(), *clean.values()]),
        channels=Counter(files.image_channels(image) for image in images.values()).most_common(1)[0][0],
        records=tuple(records),
        trusted=_trusted_ids(root, description.trusted, records),
        intensity=description.intensity,
        reader=FileReader(values=description.values, ignore=description.ignore),
    )


def _expect_consistent(path: Path, description: Description) -> None:
    classes, values = description.classes, description.values
    if classes is not None and len(classes) < 2:
        raise ValueError(f"{path}: classes must name the background and at least one more, got {list(classes)}")
    if values and (classes is None or len(values) != len(classes) or len(set(values)) != len(values)):
        raise ValueError(f"{path}: values must give one different number for each of classes, got {list(values)}")
    if description.ignore in (values or range(len(classes or ()))):
        raise ValueError(f"{path}: ignore: {description.ignore} is also the value of a class")
    if description.intensity is not None and not description.intensity[0] < description.intensity[1]:
        raise ValueError(f"{path}: intensity must be [low, high] with low < high, got {list(description.intensity)}")


def _list(folder: Path, *, optional: bool = False) -> dict[str, Path]:
    if folder.is_dir():
        return files.list_images(folder)
    if optional:
        return {}
    raise FileNotFoundError(f"{folder.parent}: no folder {folder.name}/ (a dataset has images/ and masks/)")


def _match(
    root: Path,
    images: dict[str, Path],
    masks: dict[str, Path],
    clean: dict[str, Path],
    weights: dict[str, Path],
) -> None:
    if not images:
        known = ", ".join((*files.IMAGE_SUFFIXES, *files.VOLUME_SUFFIXES))
        raise ValueError(f"{root / 'images'}: no images (known suffixes: {known})")
    bare = [name for name in images if name not in masks]
    if bare:
        raise ValueError(f"{images[bare[0]]}: no mask of this name in masks/ ({len(bare)} such images)")
    for folder in (masks, clean, weights):
        lost = [name for name in folder if name not in images]
        if lost:
            raise ValueError(f"{folder[lost[0]]}: no image of this name in images/ ({len(lost)} such files)")


def _read_split(path: Path, images: dict[str, Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Split by name (empty when the file has no such column) and group by name (the name itself by default)."""
    groups = {name: name for name in images}
    if not path.exists():
        return {}, groups
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None
    table = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    columns = table.fieldnames or []
    if "name" not in columns or not {"split", "group", "patient"} & set(columns):
        raise ValueError(f"{path}: needs the columns name and split (or group), got {', '.join(columns) or 'none'}")
    group_column = "group" if "group" in columns else "patient"
    splits: dict[str, str] = {}
    seen: set[str] = set()
    for row in table:
        where = f"{path}, line {table.line_num}"
        if None in row or None in row.values():
            raise ValueError(f"{where}: expected {len(columns)} values ({', '.join(columns)})")
        name = row["name"] if row["name"] in images else files.stem(Path(row["name"]))
        if name not in images:
            raise ValueError(f"{where}: no image named {row['name']!r}")
        if name in seen:
            raise ValueError(f"{where}: {name!r} is listed twice")
        seen.add(name)
        if "split" in columns:
            if row["split"] not in SPLITS:
                raise ValueError(f"{where}: unknown split {row['split']!r}, choose one of {', '.join(SPLITS)}")
            splits[name] = row["split"]
        groups[name] = row.get(group_column) or name
    missing = [name for name in images if name not in seen]
    if missing:
        raise ValueError(f"{path}: no row for image {missing[0]!r} ({len(missing)} such images)")
    _expect_whole_groups(path, splits, groups, group_column)
    return splits, groups


def _expect_whole_groups(path: Path, splits: dict[str, str], groups: dict[str, str], column: str) -> None:
    """Images of one patient are alike: a model that has seen some of them knows too much about the others."""
    first_split: dict[str, str] = {}
    for name, split in splits.items():
        other = first_split.setdefault(groups[name], split)
        if other != split:
            raise ValueError(
                f"{path}: {column} {groups[name]!r} is in {other} and in {split} ({name!r}); give all its images one "
                f"split, or drop the column {column} if each image may stand for itself"
            )


def _seeded_split(groups: dict[str, str], *, seed: int, fractions: tuple[float, float, float]) -> dict[str, str]:
    """Deal whole groups to train, val and test; from three groups on, each part with a fraction gets one."""
    if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f"fractions must not be negative and must sum to 1, got {fractions}")
    names = sorted(set(groups.values()))
    dealt = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]

    def share(fraction: float, *, at_least_one: bool) -> int:
        return max(round(fraction * len(names)), int(at_least_one and fraction > 0))

    test = share(fractions[2], at_least_one=len(names) >= 2)
    val = min(share(fractions[1], at_least_one=len(names) >= 3), len(names) - test)
    part = dict.fromkeys(dealt[:test], "test") | dict.fromkeys(dealt[test : test + val], "val")
    return {name: part.get(group, "train") for name, group in groups.items()}


def _expect_whole_splits(root: Path, images: dict[str, Path], clean: dict[str, Path], splits: dict[str, str]) -> None:
    """A score over a mixture of true and noisy labels would mean nothing, so a split has clean/ or has it not."""
    for split in SPLITS:
        names = [name for name in images if splits[name] == split]
        missing = [name for name in names if name not in clean]
        if missing and len(missing) < len(names):
            raise ValueError(
                f"{root / 'clean'}: holds {len(names) - len(missing)} of the {len(names)} {split} images, "
                f"{missing[0]!r} is missing (give all images of a split or none; mark right masks as `trusted`)"
            )


def _expect_same_slices(image: Path, companion: Path | None) -> None:
    if companion is None:
        return
    if files.is_volume(image) != files.is_volume(companion):
        raise ValueError(f"{companion}: its image {image.name} is {'a' if files.is_volume(image) else 'no'} volume")
    if files.is_volume(image) and files.slice_count(image) != files.slice_count(companion):
        counts = files.slice_count(companion), files.slice_count(image)
        raise ValueError(f"{companion}: {counts[0]} slices, but its image {image.name} has {counts[1]}")


def _label_space(root: Path, description: Description, masks: list[Path]) -> LabelSpace:
    if description.classes is None:
        names = _inferred_classes(root, masks, ignore=description.ignore)
    else:
        names = description.classes
    try:
        return LabelSpace(names=names, colours=description.colours)
    except ValueError as error:
        raise ValueError(f"{root / 'dataset.yaml'}: {error}") from error


def _inferred_classes(root: Path, masks: list[Path], *, ignore: int | None) -> tuple[str, ...]:
    present: set[int] = set()
    for path in masks:
        present |= files.mask_values(path)
    labels = present - {ignore, IGNORE}
    if not labels or labels == {0}:
        reason = (
            "if 255 is the foreground, give `classes: [background, foreground]` and `values: [0, 255]` in dataset.yaml"
            if IGNORE in present
            else "name the classes in dataset.yaml"
        )
        raise ValueError(f"{root / 'masks'}: no label but {sorted(present)} (255 means ignored); {reason}")
    if min(labels) < 0 or max(labels) >= _MOST_INFERRED_CLASSES:
        odd = min(labels) if min(labels) < 0 else max(labels)
        raise ValueError(
            f"{root / 'masks'}: label {odd} does not look like a class; name classes and values in dataset.yaml"
        )
    if ignore is not None and 0 <= ignore < max(labels):  # every id below the highest would be a class, this one, too
        values = sorted(labels)
        names = ["background", *(f"class{value}" for value in values[1:])]
        raise ValueError(
            f"{root / 'dataset.yaml'}: ignore: {ignore} lies among the labels {values} of the masks; "
            f"name the others there, as in `classes: [{', '.join(names)}]` and `values: {values}`"
        )
    return ("background", *(f"class{i}" for i in range(1, max(labels) + 1)))


def _trusted_ids(root: Path, trusted: tuple[str, ...], records: list[Record]) -> frozenset[str]:
    found: set[str] = set()
    for name in trusted:
        ids = {record.id for record in records if name in (record.id, files.stem(record.image))}
        if not ids:
            raise ValueError(f"{root / 'dataset.yaml'}: trusted: no image named {name!r}")
        found |= ids
    return frozenset(found)
