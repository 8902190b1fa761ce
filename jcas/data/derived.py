"""Parts of a dataset folder that is made from another dataset: links to its files, its split and its description."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from jcas.data import files
from jcas.data.dataset import Dataset, FileReader, Record


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
