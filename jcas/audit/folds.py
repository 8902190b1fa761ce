"""Models that have not seen what they judge: K trainings, each without one part of the images."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jcas.data import Dataset, Record
from jcas.data.derived import file_name, write_derived
from jcas.engine import train
from jcas.run import MODEL_FILE, Run, read_run


@dataclass(frozen=True)
class FoldModels:
    """Which run judges which group of images; ``otherwise`` judges all groups that are not named."""

    runs: Mapping[str, Run]
    otherwise: Run

    def of(self, record: Record) -> Run:
        """The run that judges a record."""
        return self.runs.get(record.group, self.otherwise)

    def all(self) -> list[Run]:
        """The runs that judge anything."""
        return list({run.path: run for run in self.runs.values()}.values()) or [self.otherwise]


def deal_groups(groups: Sequence[str], *, folds: int, seed: int) -> list[list[str]]:
    """Deal groups (patients, volumes, videos) to folds of almost equal number; the same on every machine.

    >>> [len(part) for part in deal_groups(["a", "b", "c", "d", "e"], folds=2, seed=0)]
    [3, 2]
    """
    names = sorted(set(groups))
    if not 2 <= folds <= len(names):
        raise ValueError(f"folds must lie in 2..{len(names)} (the number of groups), got {folds}")
    dealt = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    return [sorted(dealt[fold::folds]) for fold in range(folds)]


def train_folds(
    run: Run, dataset: Dataset, records: Sequence[Record], out: Path, *, folds: int, progress: bool
) -> FoldModels:
    """Train ``folds`` models with the run's config; no model sees the groups that it judges, not even to select.

    The fold's own images are its test split, read after training only. Finished folds are kept and a broken-off one
    continues, so this can be called again after a kill.
    """
    judged_by: dict[str, Run] = {}
    for number, groups in enumerate(deal_groups([r.group for r in records], folds=folds, seed=run.config.seed)):
        data, folder = out / str(number) / "data", out / str(number) / "run"
        if not data.exists():
            held_out = {record.group for record in records} & set(groups)
            splits = {file_name(r): "test" if r.group in held_out else r.split for r in records}
            if "train" not in splits.values():
                splits = {name: "train" if split == "val" else split for name, split in splits.items()}
            write_derived(
                dataset,
                data,
                records,
                mask=lambda record: dataset.load(record, clean=False).noisy.numpy().astype(np.uint8),
                splits=splits,
            )
        if not (folder / MODEL_FILE).is_file():
            resume = (folder / "checkpoints" / "last.ckpt").is_file()
            if not resume:
                shutil.rmtree(folder, ignore_errors=True)
            config = run.config.model_copy(update={"data": str(data), "labels": "noisy", "watch": "none"})
            train(config, folder, resume=resume, progress=progress)
        judged_by |= dict.fromkeys(groups, read_run(folder))
    return FoldModels(judged_by, run)
