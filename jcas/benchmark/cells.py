"""One cell: train it, continue it, or leave it alone, and leave behind either results or the reason of the failure."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jcas.config import make_config
from jcas.run import write_bytes


def run_cell(values: Mapping[str, Any], folder: Path) -> bool:
    """Bring a cell to its end, from wherever an earlier attempt stopped; False if it failed.

    A folder with ``results.json`` is finished, one with a checkpoint is resumed, any other starts afresh. A failure
    is the cell's own: its reason goes to ``error.txt``. Nothing that was trained is thrown away, also where its
    checkpoint no longer fits the code.
    """
    from jcas.engine import train  # slow to import: the process that only hands out cells does not need it

    if (folder / "results.json").is_file():
        return True
    (folder / "error.txt").unlink(missing_ok=True)
    resume = (folder / "checkpoints" / "last.ckpt").is_file()
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        train(make_config(values, source=folder.name), folder, resume=resume, progress=False)
    except Exception as error:
        write_error(folder, f"{type(error).__name__}: {error}", traceback.format_exc())
        return False
    return True


def write_error(folder: Path, reason: str, details: str = "") -> None:
    """Record why a cell failed: one line, then what a developer wants to see."""
    write_bytes(folder / "error.txt", f"{' '.join(reason.split())}\n\n{details}".rstrip().encode() + b"\n")


def epochs_done(folder: Path) -> int:
    """Epochs that a running cell has behind it."""
    path = folder / "metrics.jsonl"
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
