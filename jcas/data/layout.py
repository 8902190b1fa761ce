"""Open a dataset by looking at its folders."""

from __future__ import annotations

from pathlib import Path

from jcas.data.dataset import Dataset
from jcas.data.endovis import read_endovis17, read_endovis18
from jcas.data.folder import read_folder


def open_dataset(path: Path | str, *, seed: int = 0) -> Dataset:
    """Open a plain folder, EndoVis 2018 or EndoVis 2017, whichever layout ``path`` has.

    ``seed`` is that of the split of a plain folder without ``split.csv``.
    """
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    if (root / "images").is_dir() or (root / "masks").is_dir():
        return read_folder(root, seed=seed)
    for pattern, read in (("seq_*", read_endovis18), ("instrument_dataset_*", read_endovis17)):
        if any(root.glob(pattern)) or any(root.glob(f"*/{pattern}")):
            return read(root)
    raise ValueError(f"{root}: no dataset (expected images/ and masks/, seq_*/ or instrument_dataset_*/)")
