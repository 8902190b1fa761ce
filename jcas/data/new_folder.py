"""A folder that appears whole or not at all, for every command that writes a dataset."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def expect_no_files(folder: Path) -> None:
    """Refuse a place for a new folder where something lies already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is not an empty folder")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A hidden folder that takes the place of ``path`` when the block ends well and vanishes when not."""
    expect_no_files(path)
    building = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}"
    try:
        building.mkdir(parents=True)
        yield building
        if path.exists():
            path.rmdir()
        building.rename(path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
