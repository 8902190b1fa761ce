"""A rehearsal: what a method would undo if its own predictions were the truth. No true label takes part.

Labels with a habit cannot judge those who undo it: they have it on validation images, too. But predictions of a run
that has seen nothing but such labels are masks of these very images, and the noise can be laid over *them*: then there
is a truth to compare with. Training images keep their part (an eighth of the groups becomes the validation split), the
former validation images, which no run was trained on, become the test. A parametric bootstrap (Efron & Tibshirani 1993)
of the labels, for choosing settings; it flatters whoever thinks like the run that wrote the script.

Used by ``benchmarks/constants.py --rehearse``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from torch import Tensor, stack

from jcas.benchmark.cells import run_cell
from jcas.corrupt import corrupt
from jcas.data import Dataset, Record, open_dataset
from jcas.data.derived import file_name, write_derived
from jcas.noise import SFDA, Noise, make_noise
from jcas.predict import mask_predictor
from jcas.run import read_run

NOISE_SEED = 1  # the labels themselves were drawn with 0
_HALVINGS = 8
_STRONGEST_CAST = 2.0

Predictor = Callable[[Tensor], np.ndarray]


def rehearsal(cell: Path, out: Path) -> Path:
    """The dataset of a rehearsal of a finished cell of JCAS, made in ``out`` where it is not there yet."""
    if (out / "labels").is_dir():
        return out / "labels"
    run = read_run(cell)
    dataset = open_dataset(run.config.data or "")
    predict = mask_predictor(run, dataset)
    records = [*dataset.split("train"), *dataset.split("val")]
    script = {record.id: predict(dataset.load(record, clean=False).image) for record in records}
    if not (out / "script").is_dir():
        splits = {file_name(record): {"val": "test"}.get(record.split, record.split) for record in records}
        write_derived(dataset, out / "script", records, mask=lambda record: script[record.id], splits=splits)
    about = json.loads((Path(dataset.root) / "noise.json").read_text(encoding="utf-8"))
    noise: Noise
    if about["noise"] == "sfda":
        noise = _foreign_model(cell, out, dataset, records, script)
    else:
        noise = make_noise(about["noise"], num_classes=dataset.labels.num_classes, parameters=about["parameters"])
    return corrupt(out / "script", noise=noise, out=out / "labels", seed=NOISE_SEED, progress=False)


def config_for(cell: Path, **changes: Any) -> dict[str, Any]:
    """The config of a cell with some other values."""
    values: dict[str, Any] = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    return values | changes


def _foreign_model(
    cell: Path, out: Path, dataset: Dataset, records: list[Record], script: dict[str, np.ndarray]
) -> SFDA:
    """A plain model of the script that sees the images in another colour: so strange that it errs as often as labels.

    Where the labels of the other laboratory come from nobody knows; how many of them differ from the script is seen.
    """
    run_folder = out / "foreign"
    if not run_cell(config_for(cell, data=str(out / "script"), method="baseline", options={}), run_folder):
        raise SystemExit(f"failed: {run_folder} (error.txt)")
    run = read_run(run_folder)
    predict = mask_predictor(run, dataset)
    samples = [dataset.load(record, clean=False) for record in records]
    scripts = [script[record.id] for record in records]
    given = _differing([sample.noisy.numpy() for sample in samples], scripts)
    weak, strong = 0.0, _STRONGEST_CAST
    for _ in range(_HALVINGS):
        middle = (weak + strong) / 2
        seen = [predict(recoloured(sample.image, middle)) for sample in samples[::4]]
        if _differing(seen, scripts[::4]) < given:
            weak = middle
        else:
            strong = middle
    print(f"{out.name}: {given:.1%} of the labels differ from the script; colour cast {strong:.2f}", flush=True)
    return SFDA(
        num_classes=dataset.labels.num_classes,
        predictor=lambda image: predict(recoloured(image, strong)),
        source=f"a model of {out.name}/script, colour cast {strong:.3f}",
    )


def recoloured(image: Tensor, cast: float) -> Tensor:  # (3, H, W) in 0..1
    """As another laboratory's stain and camera might show it: red darker, blue brighter."""
    red, green, blue = image
    return stack([red ** (1 + cast), green, blue ** (1 / (1 + cast))])


def _differing(masks: list[np.ndarray], others: list[np.ndarray]) -> float:
    return float(np.mean([np.mean(mask != other) for mask, other in zip(masks, others, strict=True)]))
