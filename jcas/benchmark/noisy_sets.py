"""The datasets of a grid: each noise is laid over each dataset once, and all methods and seeds train on that copy."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jcas.config import named_values
from jcas.corrupt import corrupt, count, measure
from jcas.data import Dataset
from jcas.noise import NOISES, SFDA, Noise, make_noise
from jcas.noise.base import Mask
from jcas.predict import mask_predictor
from jcas.run import read_run

AS_THEY_ARE = "none"
CLEAN = "clean"
"""Name of the set that the upper bound trains on."""

NOISE_SEED = 0
"""Of every noisy set: the seeds of a grid vary the training, never the labels."""

_MOST_WRONG = 0.99
_NEXT_PARAMETER = re.compile(r",(?=\s*[A-Za-z_]\w*=)")


@dataclass(frozen=True)
class NoiseSpec:
    """A noise as the command line names it: ``NAME``, ``NAME:key=value,key=value``, ``sfda:RUN`` or ``none``."""

    name: str
    parameters: Mapping[str, Any]
    source: Path | None = None  # run folder of sfda

    @property
    def label(self) -> str:
        """Short name that tells the noises of a grid apart.

        >>> parse_noise("symmetric:rate=0.5").label, parse_noise("ellipse").label
        ('symmetric:rate=0.5', 'ellipse')
        """
        if self.source is not None:
            return f"sfda:{self.source.name}"
        values = ",".join(f"{key}={_plain(value)}" for key, value in self.parameters.items())
        return f"{self.name}:{values}" if values else self.name


@dataclass(frozen=True)
class NoisySet:
    """A dataset with one noise, ready to train on, and what is known of its labels."""

    dataset: str
    noise: str  # label of the spec
    folder: str  # relative to the benchmark's folder where it lies inside
    kind: str  # name in NOISES, "none" or "clean"
    parameters: dict[str, Any]
    class_noise_rate: float | None = None
    affinity_noise_rate: float | None = None
    root: str | None = None  # folder of the dataset itself; grids of older versions do not know it
    run: str | None = None  # folder of sfda's model
    labels: str | None = None  # `label_hash` of the dataset
    wrong_shares: list[float] | None = None  # `wrong_shares` of it, if a method is told

    def to_json(self) -> dict[str, Any]:
        """As ``grid.json`` stores it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Clean(Noise):
    """No noise: the true labels, for the upper bound."""

    def apply(self, mask: Mask, rng: np.random.Generator, image: torch.Tensor | None) -> Mask:
        """A copy of the mask."""
        return mask.copy()


def parse_noise(text: str) -> NoiseSpec:
    """Read a noise from the command line.

    >>> parse_noise("asymmetric:rate=0.4").parameters
    {'rate': 0.4}
    """
    name, _, rest = text.partition(":")
    if name == "sfda":
        if not rest:
            raise ValueError(f"--noise {text}: say whose predictions become the labels, sfda:RUN")
        return NoiseSpec("sfda", {}, Path(rest))
    if name != AS_THEY_ARE and name not in NOISES:
        known = ", ".join([AS_THEY_ARE, *(key for key in NOISES if key != "sfda"), "sfda:RUN"])
        hint = ", repeat --noise for each" if "," in name else ""
        raise ValueError(f"--noise {text}: unknown noise {name!r}{hint} (known: {known})")
    items = _NEXT_PARAMETER.split(rest) if rest else []
    parameters = named_values(items, wanted=f"--noise {text}: expected key=value after the colon")
    if name == AS_THEY_ARE and parameters:
        raise ValueError(f"--noise {text}: none has no parameters")
    return NoiseSpec(name, parameters)


def check_noise(spec: NoiseSpec, dataset: Dataset) -> None:
    """Raise what `prepare` would raise, before the first file is written."""
    if spec.source is not None:
        predicted_labels(spec.source, dataset)
    elif spec.name != AS_THEY_ARE:
        make_noise(spec.name, num_classes=dataset.labels.num_classes, parameters=spec.parameters)


def predicted_labels(source: Path, dataset: Dataset) -> Noise:
    """The noise whose labels are what the run in ``source`` predicts (sfda)."""
    run = read_run(source)
    return SFDA(num_classes=run.labels.num_classes, predictor=mask_predictor(run, dataset), source=str(source))


def prepare(dataset: Dataset, spec: NoiseSpec, out: Path, *, progress: bool = True) -> NoisySet:
    """Make the noisy copy in ``out/data``, or find the one that an earlier command made.

    All splits get noise, the test split for the pictures only: scores are taken against ``clean/``.
    """
    if spec.name == AS_THEY_ARE:
        root = str(dataset.root.resolve())
        return NoisySet(dataset.name, spec.label, root, AS_THEY_ARE, {}, **_rates_as_they_are(dataset), root=root)
    noise: Noise | str = spec.name
    if spec.source is not None:
        noise = predicted_labels(spec.source, dataset)
    return _noisy_copy(dataset, noise, spec.parameters, spec.label, out, progress=progress)


def prepare_clean(dataset: Dataset, out: Path, *, progress: bool = True) -> NoisySet:
    """The set of the upper bound: true labels to train on and to select by."""
    if dataset.truth_is_clean("test") and not dataset.truth_is_clean("train"):
        raise ValueError(f"{dataset.root}: no true training labels in clean/; leave upper_bound out of --methods")
    return _noisy_copy(dataset, Clean(num_classes=dataset.labels.num_classes), {}, CLEAN, out, progress=progress)


def set_name(dataset: str, noise: str) -> str:
    """A dataset and the label of a noise as one file name, which no other two share.

    >>> set_name("acdc", "symmetric:rate=0.5"), set_name("my data", "none")
    ('acdc__symmetric-rate=0.5', 'my-data-b2167b0a__none')
    """
    return f"{_file_safe(dataset)}__{_file_safe(noise.replace(':', '-', 1))}"


def _noisy_copy(
    dataset: Dataset, noise: Noise | str, parameters: Mapping[str, Any], label: str, out: Path, *, progress: bool
) -> NoisySet:
    folder = out / "data" / set_name(dataset.name, label)
    if not (folder / "noise.json").is_file():
        corrupt(
            dataset.root,
            noise=noise,
            parameters=dict(parameters) or None,
            out=folder,
            seed=NOISE_SEED,
            workers=1,
            splits=("train", "val", "test"),
            progress=progress,
        )
    about = json.loads((folder / "noise.json").read_text(encoding="utf-8"))
    return NoisySet(
        dataset.name,
        label,
        str(folder.relative_to(out)),
        CLEAN if isinstance(noise, Clean) else about["noise"],
        about["parameters"],
        about["class_noise_rate"],
        about["affinity_noise_rate"],
        root=str(dataset.root.resolve()),
        run=str(Path(noise.source).resolve()) if isinstance(noise, SFDA) else None,
    )


def label_hash(dataset: Dataset) -> str:
    """Changes with the images that a dataset lists, their splits, its classes and any label of a mask."""
    found = hashlib.sha256("\0".join(dataset.labels.names).encode())
    for record in sorted(dataset.records, key=lambda record: record.id):
        found.update(f"\0{record.id}\0{record.split}\0".encode())
        for path in (record.noisy, record.clean):
            if path is not None:
                found.update(dataset.reader.mask(path, record, labels=dataset.labels).byte().numpy().tobytes())
    return found.hexdigest()[:16]


def _file_safe(text: str) -> str:
    """Text as part of a file name, with a hash if anything had to go: two names must not become one."""
    safe = re.sub(r"[^A-Za-z0-9.=_+-]+|__+", "-", text).strip("-.") or "unnamed"
    return safe if safe == text else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def wrong_shares(dataset: Dataset) -> list[float] | None:
    """How many of the training labels that name each class are wrong, as a share; None if nobody knows the true ones.

    Never quite 1: a method that sets wrong labels aside would have nothing left of a class.
    """
    measured = _measured(dataset)
    if measured is None:
        return None
    counts = np.array(measured["counts"], float)  # by true and given class
    given = counts.sum(0)
    shares = (given - counts.diagonal()) / np.maximum(given, 1)
    return [round(float(share), 4) for share in shares.clip(max=_MOST_WRONG)]


def _rates_as_they_are(dataset: Dataset) -> dict[str, Any]:
    """Noise rates of training labels that come with true ones."""
    measured = _measured(dataset)
    return {} if measured is None else {key: measured[key] for key in ("class_noise_rate", "affinity_noise_rate")}


def _measured(dataset: Dataset) -> dict[str, Any] | None:
    """What is wrong with training labels that come with true ones."""
    if not any(record.clean for record in dataset.split("train")):
        return None
    counts = {}
    for record in dataset.split("train"):
        sample = dataset.load(record, clean=True)
        assert sample.clean is not None
        judged = sample.noisy != dataset.labels.ignore
        counts[record.id] = count(
            sample.clean[judged].numpy().astype(np.uint8),
            sample.noisy[judged].numpy().astype(np.uint8),
            num_classes=dataset.labels.num_classes,
        )
    return measure(counts, labels=dataset.labels)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
