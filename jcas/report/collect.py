"""A run folder, read into plain dataclasses: the only place that knows its file names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from jcas.schema import LabelSpace

Table = Mapping[str, float | None]
"""Scores in percent by class name, and ``mean``."""
Matrix = tuple[tuple[float, ...], ...]

LAYERS = ("given", "clean", "predicted")
"""Label maps that a gallery entry may hold beside its image."""


@dataclass(frozen=True)
class Scores:
    """The two score tables of one epoch."""

    jac: Table
    dice: Table
    epoch: int | None = None


@dataclass(frozen=True)
class Transitions:
    """Learnt noise matrices, and the true ones where the noise was synthetic."""

    class_transition: Matrix | None = None
    affinity_transition: Matrix | None = None
    prior: tuple[float, ...] | None = None
    true_class_transition: Matrix | None = None
    true_affinity_transition: Matrix | None = None


@dataclass(frozen=True)
class Picture:
    """One gallery entry: an image and its label maps, as files that exist."""

    id: str
    split: str
    jac: float | None
    given_jac: float | None  # of the labels it was trained on, or might have been
    files: Mapping[str, Path]  # "image", "given", "clean", "predicted"


@dataclass(frozen=True)
class Run:
    """All that a run folder tells."""

    folder: Path
    method: str
    dataset: str
    labels: LabelSpace
    selected: Scores
    noise: str | None = None
    seed: int | None = None
    last: Scores | None = None
    selection: str | None = None
    seconds: float | None = None
    peak_memory_mb: float | None = None
    version: str | None = None
    commit: str | None = None
    started: str | None = None
    truth: str | None = None
    noise_info: Mapping[str, float] = field(default_factory=dict)
    findings: Mapping[str, str] = field(default_factory=dict)
    epochs: tuple[Mapping[str, Any], ...] = ()
    transitions: Transitions = field(default_factory=Transitions)
    config_text: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()


def read_run(folder: Path) -> Run:
    """Read a run folder; only ``results.json`` must exist."""
    folder = Path(folder)
    results_file = folder / "results.json"
    if not results_file.is_file():
        raise ValueError(f"not a run folder: {folder} (it has no results.json)")
    results = _read_json(results_file)
    if not isinstance(results, dict):
        raise ValueError(f"{results_file} does not hold a JSON object")
    missing = [key for key in ("method", "dataset", "classes", "jac", "dice") if key not in results]
    if missing:
        raise ValueError(f"{results_file} lacks {', '.join(missing)}")
    try:
        colours = tuple(tuple(colour) for colour in results.get("colours") or ())
        labels = LabelSpace(names=tuple(results["classes"]), colours=colours)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{results_file}: {error}") from error
    last = results.get("last_epoch")
    config_text, config = _read_config(folder / "config.yaml")
    return Run(
        folder=folder,
        method=str(results["method"]),
        dataset=str(results["dataset"]),
        labels=labels,
        selected=_scores(results, results.get("selected_epoch")),
        noise=results.get("noise"),
        seed=results.get("seed"),
        last=_scores(last, last.get("epoch")) if last else None,
        selection=results.get("selection"),
        seconds=number(results.get("seconds")),
        peak_memory_mb=number(results.get("peak_memory_mb")),
        version=results.get("version"),
        commit=results.get("commit"),
        started=results.get("started"),
        truth=results.get("truth"),
        noise_info={
            key: rate for key, value in (results.get("noise_info") or {}).items() if (rate := number(value)) is not None
        },
        findings={str(name): str(finding) for name, finding in (results.get("findings") or {}).items()},
        epochs=_read_epochs(folder / "metrics.jsonl"),
        transitions=_read_transitions(folder / "transition.json"),
        config_text=config_text,
        config=config,
        pictures=_read_gallery(folder / "gallery"),
    )


def number(value: object) -> float | None:
    """The value if it is a finite number, else None: diverged runs write NaN, and a report must still open."""
    if isinstance(value, int | float) and isfinite(value):
        return float(value)
    return None


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error


def _scores(tables: Mapping[str, Any], epoch: int | None) -> Scores:
    jac, dice = ({name: number(v) for name, v in tables[key].items()} for key in ("jac", "dice"))
    return Scores(jac=jac, dice=dice, epoch=epoch)


def _read_epochs(file: Path) -> tuple[Mapping[str, Any], ...]:
    if not file.is_file():
        return ()
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    epochs = []
    for number, line in enumerate(lines, start=1):
        try:
            epochs.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # a run that was stopped in the middle of writing its last line
            raise ValueError(f"{file} line {number} is not valid JSON: {error}") from error
        if "epoch" not in epochs[-1]:
            raise ValueError(f"{file} line {number} lacks epoch")
    return tuple(epochs)


def _read_transitions(file: Path) -> Transitions:
    if not file.is_file():
        return Transitions()
    found = _read_json(file)

    def matrix(key: str) -> Matrix | None:
        return tuple(tuple(row) for row in found[key]) if found.get(key) else None

    return Transitions(
        class_transition=matrix("class_transition"),
        affinity_transition=matrix("affinity_transition"),
        prior=tuple(found["prior"]) if found.get("prior") else None,
        true_class_transition=matrix("true_class_transition"),
        true_affinity_transition=matrix("true_affinity_transition"),
    )


def _read_config(file: Path) -> tuple[str | None, Mapping[str, Any]]:
    if not file.is_file():
        return None, {}
    text = file.read_text(encoding="utf-8")
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error
    return text, config if isinstance(config, dict) else {}


def _read_gallery(folder: Path) -> tuple[Picture, ...]:
    index = folder / "gallery.json"
    if not index.is_file():
        return ()
    pictures = []
    for entry in _read_json(index):
        if not {"id", "files"} <= entry.keys():
            raise ValueError(f"{index} has an entry without id or files: {entry!r}")
        files = {}
        for layer, name in entry["files"].items():
            file = folder / name
            if not file.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{index} names a file outside its folder: {name!r}")
            if file.is_file():
                files[layer] = file
        pictures.append(
            Picture(
                id=str(entry["id"]),
                split=str(entry.get("split") or ""),
                jac=number(entry.get("jac")),
                given_jac=number(entry.get("given_jac")),
                files=files,
            )
        )
    return tuple(pictures)
