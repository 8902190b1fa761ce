"""The dataset that was audited: where it lies now, and whether its masks are still the audited ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from jcas.data.dataset import Dataset, Record
from jcas.data.layout import open_dataset
from jcas.review.audit import Audit, AuditedImage
from jcas.schema import IGNORE


class SourceMissingError(FileNotFoundError):
    """The audited dataset is not where it was."""


def open_source(audit: Audit, data: Path | None = None) -> Dataset:
    """The audited dataset; a path that was relative then may be so to the audit folder's surroundings."""
    given = data or Path(audit.data)
    root = next((place for place in (given, audit.root / given, audit.root.parent / given) if place.is_dir()), None)
    if root is None:
        raise SourceMissingError(f"{given}: the audited dataset is not there; say where it is with --data")
    dataset = open_dataset(root)
    if dataset.labels.names != audit.classes:
        raise ValueError(f"{root}: classes {dataset.labels.names}, but the audit saw {audit.classes}")
    known = {record.id for record in dataset.records}
    lost = [image.id for image in audit.images if image.id not in known]
    if lost:
        raise ValueError(f"{root}: image {lost[0]!r} of the audit is missing ({len(lost)} such images)")
    return dataset


def source_mask(dataset: Dataset, record: Record, image: AuditedImage | None) -> NDArray[np.uint8]:
    """The mask in the dataset, (H, W); a `ValueError` if it is not the one that was audited."""
    if record.noisy is None:
        source = np.full(dataset.size(record), IGNORE, np.uint8)
    else:
        source = dataset.reader.mask(record.noisy, record, labels=dataset.labels).numpy().astype(np.uint8)
    if image is not None:
        same = hashlib.sha256(np.ascontiguousarray(source).tobytes()).hexdigest() == image.given_sha256
        if not same or source.shape != (image.height, image.width):
            raise ValueError(f"{record.noisy}: the mask of {image.id!r} has changed since the audit; audit again")
    return source


def check_source(audit: Audit, data: Path | None = None) -> None:
    """Raise what an export would raise about the dataset, before anyone spends hours on decisions."""
    dataset = open_source(audit, data)
    audited = {image.id: image for image in audit.images}
    records = [record for record in dataset.records if record.id in audited]
    console = Console(stderr=True)
    for record in track(records, "checking the masks", console=console, transient=True, disable=len(records) < 50):
        source_mask(dataset, record, audited[record.id])
