"""Close the loop: a dataset to train on from what the audit found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jcas.audit.journal import mask_hash, read_layer
from jcas.data import Record, open_dataset
from jcas.data.derived import write_derived


def check_dataset_request(out: Path, use: str) -> None:
    """Raise what `write_dataset` would raise of its arguments, before an audit of hours."""
    if use not in ("repaired", "weighted"):
        raise ValueError(f"use must be repaired or weighted, got {use!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: exists and is not an empty folder")


def write_dataset(audit_dir: Path, out: Path, *, use: Literal["repaired", "weighted"] = "repaired") -> Path:
    """Write a dataset folder that `jcas train` reads: the audited dataset with repaired masks, or with weights.

    Args:
        audit_dir: a finished audit.
        out: a folder that does not exist or is empty. True labels of the source stay in ``clean/``; images that were
            not audited keep their masks.
        use: ``repaired`` replaces labels; ``weighted`` keeps all labels and stores how far to trust each pixel.
    """
    about = read_audit(audit_dir)
    check_dataset_request(out, use)
    dataset = open_dataset(about["data"])
    lines = (audit_dir / "images.jsonl").read_text(encoding="utf-8").splitlines()
    judged = {row["id"]: row["given_sha256"] for row in map(json.loads, lines)}
    lost = sorted(judged.keys() - {record.id for record in dataset.records})
    if lost:
        raise ValueError(f"{dataset.root}: image {lost[0]!r} of the audit is missing ({len(lost)} such images)")

    def mask(record: Record) -> NDArray[np.uint8]:
        given = dataset.load(record, clean=False).noisy.numpy().astype(np.uint8)
        if record.id not in judged:
            return given
        if mask_hash(given) != judged[record.id]:
            raise ValueError(f"{record.noisy}: has changed since the audit; audit again")
        return read_layer(audit_dir, "repaired", record.id) if use == "repaired" else given

    def weight(record: Record) -> NDArray[np.uint8] | None:
        if use == "weighted" and record.id in judged:
            return read_layer(audit_dir, "weights", record.id)
        return None

    labelled = [record for record in dataset.records if record.noisy is not None]
    write_derived(dataset, out, labelled, mask=mask, weight=weight, clean=True)
    return out


def read_audit(folder: Path) -> dict[str, Any]:
    """``audit.json`` of a finished audit."""
    path = folder / "audit.json"
    if not path.is_file():
        raise ValueError(f"{folder}: not a finished audit (no audit.json)")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: damaged ({error})") from None
