"""Parts of a dataset folder that is made from another dataset: links to its files, its split and its description."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from jcas.data import files
from jcas.data.dataset import Dataset, FileReader, Record
from jcas.data.new_folder import new_folder


def file_name(record: Record) -> str:
    """Name of the files of a record, without suffix; the slices of a volume share it."""
    return record.id if record.slice_index is None else record.id.rpartition("#")[0]


def file_suffix(path: Path) -> str:
    """Image suffix of a file, ``.nii.gz`` included."""
    return path.name[len(files.stem(path)) :]


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where that cannot be."""
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, or a file system without hard links
        shutil.copyfile(source, target)


def write_description(dataset: Dataset, root: Path, *, splits: Mapping[str, str] | None = None) -> None:
    """Write split.csv and dataset.yaml, so that ``root`` is read with the classes and the split of ``dataset``.

    Args:
        dataset: where classes, groups, trust and split come from.
        root: the new folder; its masks hold class ids.
        splits: other splits by file name; files that are not named are left out.
    """
    rows = {file_name(r): (r.split, r.group) for r in dataset.records}
    if splits is not None:
        rows = {name: (splits[name], group) for name, (_, group) in rows.items() if name in splits}
    with (root / "split.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["name", "split", "group"])
        table.writerows((name, split, group) for name, (split, group) in rows.items())
    described: dict[str, Any] = {
        "name": dataset.name,
        "classes": list(dataset.labels.names),
        "colours": [list(colour) for colour in dataset.labels.colours],
    }
    trusted = sorted(
        record.id for record in dataset.records if record.id in dataset.trusted and file_name(record) in rows
    )
    if trusted:
        described["trusted"] = trusted
    if dataset.intensity is not None and isinstance(dataset.reader, FileReader):
        described["intensity"] = list(dataset.intensity)
    text = yaml.safe_dump(described, sort_keys=False, allow_unicode=True)
    (root / "dataset.yaml").write_text(text, encoding="utf-8")


def write_derived(
    dataset: Dataset,
    root: Path,
    records: Sequence[Record],
    *,
    mask: Callable[[Record], np.ndarray],
    weight: Callable[[Record], np.ndarray | None] | None = None,
    clean: bool = False,
    splits: Mapping[str, str] | None = None,
) -> None:
    """Write a dataset folder of some records with other masks: whole or not at all, images linked where possible.

    Args:
        dataset: the source.
        root: a folder that does not exist or is empty.
        records: what to write; all slices of a volume or none.
        mask: labels of a record, (H, W) uint8 class ids.
        weight: trust 0..255 of a record's pixels, None for full trust.
        clean: keep the true labels.
        splits: other splits by file name (see `write_description`).
    """
    jobs: dict[str, list[Record]] = {}
    for record in records:
        jobs.setdefault(file_name(record), []).append(record)
    with new_folder(root) as building:
        for folder in ("images", "masks"):
            (building / folder).mkdir()
        for name, parts in jobs.items():
            _write_image(dataset, building, name, parts[0])
            _write_layer(building / "masks", name, parts, [mask(part) for part in parts])
            trust = [weight(part) for part in parts] if weight else []
            if any(each is not None for each in trust):
                sizes = [dataset.size(part) for part in parts]
                full = [np.full(s, 255, np.uint8) if t is None else t for t, s in zip(trust, sizes, strict=True)]
                _write_layer(building / "weights", name, parts, full)
            if clean and parts[0].clean is not None:
                truth = [dataset.load(part, clean=True).clean for part in parts]
                _write_layer(building / "clean", name, parts, [np.asarray(t, dtype=np.uint8) for t in truth])
        chosen = splits or {file_name(record): record.split for record in records}
        write_description(dataset, building, splits=chosen)


def _write_image(dataset: Dataset, root: Path, name: str, record: Record) -> None:
    if isinstance(dataset.reader, FileReader):
        link(record.image, root / "images" / f"{name}{file_suffix(record.image)}")
    else:  # other readers crop or resize: store what they give
        files.write_image(root / "images" / f"{name}.png", dataset.load(record, clean=False).image)


def _write_layer(folder: Path, name: str, records: Sequence[Record], layers: Sequence[np.ndarray]) -> None:
    """One PNG, or the slices of a volume in one NIfTI file that lies where its image lies."""
    folder.mkdir(exist_ok=True)
    first = records[0]
    if first.slice_index is None:
        files.write_mask(folder / f"{name}.png", layers[0])
    else:
        volume = np.stack(layers, axis=-1)
        files.write_mask(folder / f"{name}{file_suffix(first.image)}", volume, like=first.noisy or first.image)
