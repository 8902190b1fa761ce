"""A rehearsal: how much of the noise a method would undo if predictions of JCAS were the truth.

Labels with a habit cannot judge those who undo it: they have it on validation images, too. But predictions of a run
that was trained on such labels are masks of these very images, and noise of the same kind can be laid over *them*: then
there is something to compare with. Training images keep their part (an eighth of the groups becomes the validation
split), the former validation images, on which the run was not trained, become the test. A parametric bootstrap (Efron &
Tibshirani 1993) of the labels, for comparing settings.

No true label is read. But the kind of noise and its parameters are known, and predictions that serve as truth are those
of JCAS with its constants as they are, which favours these.

Used by ``benchmarks/constants.py --rehearse``.
"""

from __future__ import annotations

import hashlib
import json
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
from jcas.noise.sfda import Predictor
from jcas.predict import mask_predictor
from jcas.run import read_run
from jcas.schema import IGNORE

REHEARSAL_SEED = 1  # the labels themselves were drawn with 0
_HALVINGS = 10
STRONGEST_CAST = 2.0


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
    dataset = open_dataset(run.config.data or "")
    predict = mask_predictor(run, dataset)
    records = [*dataset.split("train"), *dataset.split("val")]
    believed = {record.id: predict(dataset.load(record, clean=False).image) for record in records}
    if not (out / "believed").is_dir():
        splits = {file_name(record): {"val": "test"}.get(record.split, record.split) for record in records}
        write_derived(dataset, out / "believed", records, mask=lambda record: believed[record.id], splits=splits)
    about = json.loads((Path(dataset.root) / "noise.json").read_text(encoding="utf-8"))
    noise: Noise
    if about["noise"] == "sfda":
        noise = _foreign_model(cell, out, dataset, records, believed)
    else:
        noise = make_noise(about["noise"], num_classes=dataset.labels.num_classes, parameters=about["parameters"])
    return corrupt(out / "believed", noise=noise, out=out / "labels", seed=REHEARSAL_SEED, progress=False)


def config_for(cell: Path, **changes: Any) -> dict[str, Any]:
    """The config of a cell with some other values."""
    values: dict[str, Any] = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    return values | changes


def _foreign_model(
    cell: Path, out: Path, dataset: Dataset, records: list[Record], believed: dict[str, np.ndarray]
) -> SFDA:
    """A plain model of what is believed that sees images in another colour, so strange that it errs as often as labels.

    Where the labels come from is taken to be unknown; how many of them differ from what is believed is seen.
    """
    run_folder = out / "foreign"
    if not run_cell(config_for(cell, data=str(out / "believed"), method="baseline", options={}), run_folder):
        raise SystemExit(f"failed: {run_folder} (error.txt)")
    run = read_run(run_folder)
    predict = mask_predictor(run, dataset)
    samples = [dataset.load(record, clean=False) for record in records]
    masks = [believed[record.id] for record in records]
    given = differing([sample.noisy.numpy() for sample in samples], masks)
    cast = cast_for(predict, [sample.image for sample in samples[::4]], masks[::4], given)
    print(f"{out.name}: {given:.1%} of the labels differ from what is believed; colour cast {cast:.2f}", flush=True)
    return SFDA(
        num_classes=dataset.labels.num_classes,
        predictor=lambda image: predict(recoloured(image, cast)),
        source=f"a model of {out.name}/believed, colour cast {cast:.3f}",
    )


def cast_for(predict: Predictor, images: list[Tensor], masks: list[np.ndarray], share: float) -> float:
    """The weakest colour cast, to a few thousandths, under which predictions differ from masks by such a share."""
    weak, strong = 0.0, STRONGEST_CAST
    for _ in range(_HALVINGS):
        middle = (weak + strong) / 2
        if differing([predict(recoloured(image, middle)) for image in images], masks) < share:
            weak = middle
        else:
            strong = middle
    if strong == STRONGEST_CAST:
        raise SystemExit(f"no colour cast makes the model err as often as the labels do ({share:.1%})")
    return strong


def recoloured(image: Tensor, cast: float) -> Tensor:  # (3, H, W) in 0..1
    """As another laboratory's stain and camera might show it: red darker, blue brighter."""
    red, green, blue = image
    return stack([red ** (1 + cast), green, blue ** (1 / (1 + cast))])


def differing(labels: list[np.ndarray], masks: list[np.ndarray]) -> float:
    """Share of the known labels that differ from masks, mean over images."""
    pairs = [(given, mask) for given, mask in zip(labels, masks, strict=True) if (given != IGNORE).any()]
    return float(np.mean([np.mean((given != mask)[given != IGNORE]) for given, mask in pairs]))
