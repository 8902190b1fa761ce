"""A rehearsal: how much of the noise a method would undo if predictions of JCAS were the truth.

Labels with a habit cannot judge those who undo it: they have it on validation images, too. But predictions of a run
that was trained on such labels are masks of these very images, and noise of the same kind can be laid over *them*: then
there is something to compare with. Training images keep their part (an eighth of the groups becomes the validation
split), the former validation images, on which the run was not trained, become the test. A parametric bootstrap (Efron &
Tibshirani 1993) of the labels, for comparing settings.

No true label is read. But the kind of noise and its parameters are known, and predictions that serve as truth are those
of JCAS with its constants as they are, which favours these.

Labels of another hospital's model are rehearsed with the roles reversed: what JCAS predicts for the one hospital trains
a model, which labels the images of the other, and the other's own labels, from which its model was made, are the truth
there. The step from one to the other is real, no true label of the hospital at hand is read, and predictions serve as
labels, not as truth.

Used by ``benchmarks/constants.py --rehearse``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from jcas.benchmark.cells import run_cell
from jcas.benchmark.noisy_sets import predicted_labels
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.derived import file_name, write_derived
from jcas.noise import make_noise
from jcas.predict import mask_predictor
from jcas.run import read_run

REHEARSAL_SEED = 1  # the labels themselves were drawn with 0
NEW_SPLIT = {"train": "train", "val": "test"}


def rehearsal(cell: Path, out: Path) -> Path:
    """The dataset of a rehearsal of a finished cell of JCAS, made in ``out`` where it is not there yet."""
    digest = hashlib.sha256((cell / "model.safetensors").read_bytes()).hexdigest()
    written_by = out / "written_by.txt"
    if written_by.is_file() and written_by.read_text(encoding="utf-8") != digest:
        raise SystemExit(f"{out}: made of another model than {cell}; remove it to rehearse anew")
    if (out / "labels").is_dir():
        return out / "labels"
    out.mkdir(parents=True, exist_ok=True)
    written_by.write_text(digest, encoding="utf-8")
    run = read_run(cell)
    dataset = open_dataset(run.config.data)
    predict = mask_predictor(run, dataset)
    if not (out / "believed").is_dir():
        write_derived(
            dataset,
            out / "believed",
            [*dataset.split("train"), *dataset.split("val")],
            mask=lambda record: predict(dataset.load(record, clean=False).image),
            splits={
                file_name(record): NEW_SPLIT[record.split] for record in dataset.records if record.split in NEW_SPLIT
            },
        )
    about = json.loads((Path(dataset.root) / "noise.json").read_text(encoding="utf-8"))
    if about["noise"] == "sfda":
        return _roles_reversed(cell, out, Path(about["parameters"]["source"]))
    noise = make_noise(about["noise"], num_classes=dataset.labels.num_classes, parameters=about["parameters"])
    return corrupt(out / "believed", noise=noise, out=out / "labels", seed=REHEARSAL_SEED, progress=False)


def _roles_reversed(cell: Path, out: Path, source: Path) -> Path:
    """The images of the source domain with labels of a model that was trained on ``out / "believed"``."""
    plain = config_for(cell, data=str(out / "believed"), method="baseline", options={})
    if not run_cell(plain, out / "model"):
        raise SystemExit(f"failed: {out / 'model'} (error.txt)")
    other = open_dataset(read_run(source).config.data)
    noise = predicted_labels(out / "model", other)
    return corrupt(Path(other.root), noise=noise, out=out / "labels", seed=REHEARSAL_SEED, progress=False)


def config_for(cell: Path, **changes: Any) -> dict[str, Any]:
    """The config of a cell with some other values."""
    values: dict[str, Any] = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    return values | changes
