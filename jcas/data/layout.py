"""Open a dataset by looking at its folders."""

from __future__ import annotations

from pathlib import Path

from jcas.data.dataset import Dataset
from jcas.data.description import read_description
from jcas.data.endovis import TEST_SEQUENCES_18, Description, read_endovis17, read_endovis18
from jcas.data.folder import read_folder


def open_dataset(path: Path | str, *, seed: int = 0) -> Dataset:
    """Open a plain folder, EndoVis 2018 or EndoVis 2017, whichever layout ``path`` has.

    ``seed`` is that of the split of a plain folder without ``split.csv``. The split of EndoVis is the published one
    unless a ``dataset.yaml`` beside the sequences says otherwise (`jcas.data.endovis.Description`).
    """
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    if (root / "images").is_dir() or (root / "masks").is_dir():
        return read_folder(root, seed=seed)
    for pattern, read, test in (
        ("seq_*", read_endovis18, TEST_SEQUENCES_18),
        ("instrument_dataset_*", read_endovis17, ()),
    ):
        if any(root.glob(pattern)) or any(root.glob(f"*/{pattern}")):
            chosen = read_description(root / "dataset.yaml", Description)
            return read(
                root,
                validation_sequences=chosen.validation_sequences,
                test_sequences=test if chosen.test_sequences is None else chosen.test_sequences,
                size=chosen.size,
            )
    raise ValueError(f"{root}: no dataset (expected images/ and masks/, seq_*/ or instrument_dataset_*/)")
