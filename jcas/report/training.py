"""The report on one or several training runs: scores side by side, pictures, curves, noise matrices, provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jcas.report.charts import Chart, Series, line_chart
from jcas.report.collect import Matrix, Run, Scores, Table, number, read_run
from jcas.report.gallery import DIFFERENCES, pack_gallery
from jcas.report.page import render_page, write_page

COLOURS = 8
"""Number of line colours that the style sheet defines."""


@dataclass(frozen=True)
class Cell:
    """One number of a score table."""

    value: float | None
    best: bool


@dataclass(frozen=True)
class ScoreTable:
    """Scores of all runs by class; the last column is the mean."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class MatrixView:
    """A learnt matrix, the true one where it is known, and how far apart they are."""

    title: str
    symbol: str
    meaning: str
    labels: tuple[str, ...]
    learnt: Matrix | None
    true: Matrix | None
    error: float | None


def build_report(runs: Sequence[Path], out: Path, *, title: str = "Segmentation from noisy masks") -> Path:
    """Write one self-contained HTML file about the run folders, side by side in the given order."""
    if not runs:
        raise ValueError("a report needs at least one run folder, got none")
    found = [read_run(Path(folder)) for folder in runs]
    names = run_names(found)
    gallery = pack_gallery(found)
    colours = {
        (name, colour)
        for run in found
        for name, colour in zip(run.labels.names[1:], run.labels.colours[1:], strict=True)
    }
    context: dict[str, Any] = {
        "title": title,
        "runs": [
            {
                "name": name,
                "run": run,
                "colour": position % COLOURS,
                "matrices": matrix_views(run),
                "charts": _run_charts(run),
            }
            for position, (name, run) in enumerate(zip(names, found, strict=True))
        ],
        "verdicts": _verdicts(found, names),
        "unsure": [name for name, run in zip(names, found, strict=True) if run.truth == "masks"],
        "headline": _headline(found),
        "tables": [
            _score_table(found, "Jaccard", lambda scores: scores.jac),
            _score_table(found, "Dice", lambda scores: scores.dice),
        ],
        "charts": _shared_charts(found, names),
        "config_keys": _differing_keys(found),
        "gallery": {
            "runs": [{"name": name, "colour": i % COLOURS} for i, name in enumerate(names)],
            "entries": gallery.entries,
            "together": ["given", "clean", "predicted"],
        },
        "blobs": gallery.blobs,
        "class_colours": sorted(colours, key=lambda pair: _class_order(found, pair[0])),
        "differences": DIFFERENCES,
        "reference": "truth" if any("clean" in p.files for run in found for p in run.pictures) else "given mask",
    }
    return write_page(render_page("training.html", context), out)


def run_names(runs: Sequence[Run]) -> list[str]:
    """The shortest names that tell the runs apart: method, then noise, seed and folder where needed."""
    parts: list[Callable[[Run], str]] = [
        lambda run: run.noise or "no noise",
        lambda run: f"seed {run.seed}",
        lambda run: run.folder.name,
    ]
    names = [run.method for run in runs]
    for part in parts:
        alike: dict[str, list[int]] = {}
        for position, name in enumerate(names):
            alike.setdefault(name, []).append(position)
        for name, group in alike.items():
            values = [part(runs[position]) for position in group]
            if len(set(values)) > 1:
                for position, value in zip(group, values, strict=True):
                    names[position] = f"{name}, {value}"
    if len(set(names)) < len(runs):  # the same folder given twice
        names = [f"{name} ({position})" for position, name in enumerate(names, start=1)]
    return names


def _comparable(runs: Sequence[Run]) -> dict[tuple[str, str | None, str | None], list[int]]:
    """Positions of the runs that may be ranked against each other: same data, same noise, same kind of truth."""
    groups: dict[tuple[str, str | None, str | None], list[int]] = {}
    for position, run in enumerate(runs):
        groups.setdefault((run.dataset, run.noise, run.truth), []).append(position)
    return groups


def _cells(runs: Sequence[Run], pick: Callable[[Run], float | None]) -> list[Cell]:
    """One number per run; the best of each comparable group is marked where there is a choice."""
    values = [pick(run) for run in runs]
    best: set[int] = set()
    for group in _comparable(runs).values():
        scored = [value for p in group if (value := values[p]) is not None]
        if len(scored) > 1:
            best |= {p for p in group if values[p] == max(scored)}
    return [Cell(value, position in best) for position, value in enumerate(values)]


def _headline(runs: Sequence[Run]) -> list[dict[str, Cell]]:
    columns = {
        "jac": _cells(runs, lambda run: run.selected.jac.get("mean")),
        "dice": _cells(runs, lambda run: run.selected.dice.get("mean")),
        "last_jac": _cells(runs, lambda run: run.last.jac.get("mean") if run.last else None),
    }
    return [{key: cells[position] for key, cells in columns.items()} for position in range(len(runs))]


def _score_table(runs: Sequence[Run], title: str, pick: Callable[[Scores], Table]) -> ScoreTable:
    classes = tuple(dict.fromkeys(name for run in runs for name in run.labels.foreground))

    def column(name: str) -> list[Cell]:
        return _cells(runs, lambda run: pick(run.selected).get(name))

    columns = [column(name) for name in (*classes, "mean")]
    return ScoreTable(title, classes, tuple(zip(*columns, strict=True)))


def _verdicts(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """One sentence per comparable group: who leads, and by how much over the baseline."""
    sentences = []
    for (dataset, noise, _), group in _comparable(runs).items():
        where = f"{dataset} with {noise} noise" if noise else f"{dataset} with its own masks"
        scored = [(value, p) for p in group if (value := runs[p].selected.jac.get("mean")) is not None]
        if not scored:
            continue
        best, leader = max(scored, key=lambda pair: pair[0])
        sentence = f"On {where}, {names[leader]} reaches {best:.2f} % mean Jaccard"
        base = [value for value, p in scored if runs[p].method == "baseline" and p != leader]
        if runs[leader].method == "baseline" and len(scored) > 1:
            sentence += ": no other run beats the baseline"
        elif base:
            sentence += f", {best - max(base):.2f} points above the baseline"
        sentences.append(sentence + ".")
    return sentences


def _curve(run: Run, *path: str | int) -> tuple[tuple[float, float | None], ...]:
    """Value under nested keys at every epoch; None where an epoch lacks it."""
    points = []
    for epoch in run.epochs:
        value: Any = epoch
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else value[int(key)] if value else None
        points.append((float(epoch["epoch"]), number(value)))
    return tuple(points)


def _shared_charts(runs: Sequence[Run], names: Sequence[str]) -> list[Chart]:
    """Loss and Jaccard of all runs in the same axes."""
    training, validation, scores, splits = [], [], [], set()
    for position, (run, name) in enumerate(zip(runs, names, strict=True)):
        colour, mark = position % COLOURS, run.selected.epoch
        training.append(Series(f"{name}, training", _curve(run, "train", "loss"), colour))
        validation.append(Series(f"{name}, validation", _curve(run, "val", "loss"), colour, dashed=True, mark=mark))
        looked_at = tuple(point for point in _curve(run, "looking_only", "jac") if point[1] is not None)
        scores.append(Series(name, looked_at, colour, mark=mark))
        splits |= {epoch["looking_only"]["split"] for epoch in run.epochs if epoch.get("looking_only")}
    # Two runs share one picture; the lines of more would hide each other.
    if len(runs) <= 2:
        losses = {"Loss": [line for pair in zip(training, validation, strict=True) for line in pair]}
    else:
        losses = {"Training loss": training, "Validation loss": validation}
    note = "On the labels as given. The ring is the epoch that was selected."
    charts = (
        *(line_chart(title, lines, x_label="epoch", note=note) for title, lines in losses.items()),
        line_chart(
            f"Mean Jaccard on {' and '.join(sorted(splits))}, %",
            scores,
            x_label="epoch",
            note="For looking only: it never selects the epoch.",
        ),
    )
    return [chart for chart in charts if chart]


def _run_charts(run: Run) -> list[Chart]:
    """What belongs to one run alone: the terms of its loss, and how T moved."""
    terms = dict.fromkeys(term for epoch in run.epochs for term in epoch.get("train") or {} if term != "loss")
    parts = [
        Series(term.replace("_", " "), _curve(run, "train", term), position % COLOURS)
        for position, term in enumerate(terms)
    ]
    diagonal = [
        Series(name, _curve(run, "transition_diagonal", index), index % COLOURS)
        for index, name in enumerate(run.labels.names)
    ]
    charts = (
        line_chart("Terms of the loss", parts, x_label="epoch"),
        line_chart(
            "Diagonal of the class transition",
            diagonal,
            x_label="epoch",
            note="The believed chance that a label of the class is right.",
        ),
    )
    return [chart for chart in charts if chart]


def matrix_views(run: Run) -> list[MatrixView]:
    """T_C and T_A of a run as far as they are known, learnt and true."""
    found = run.transitions
    views = [
        MatrixView(
            "Class transition",
            "C",
            "Row: true class. Column: label in the mask.",
            run.labels.names,
            found.class_transition,
            found.true_class_transition,
            _relative_error(found.class_transition, found.true_class_transition),
        ),
        MatrixView(
            "Affinity transition",
            "A",
            "Row: true relation of two pixels. Column: relation in the mask.",
            ("different", "same"),
            found.affinity_transition,
            found.true_affinity_transition,
            _relative_error(found.affinity_transition, found.true_affinity_transition),
        ),
    ]
    return [view for view in views if view.learnt or view.true]


def _relative_error(learnt: Matrix | None, true: Matrix | None) -> float | None:
    """Sum of |learnt - true| over the sum of |true|, as VolMinNet reports it (Li et al., ICML 2021)."""
    if learnt is None or true is None:
        return None
    pairs = [(a, b) for row, other in zip(learnt, true, strict=True) for a, b in zip(row, other, strict=True)]
    return sum(abs(a - b) for a, b in pairs) / sum(abs(b) for _, b in pairs)


def _differing_keys(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Settings that are not the same in all runs, as dotted keys with one value per run."""
    flat = [_flatten(run.config) for run in runs]
    keys = dict.fromkeys(key for config in flat for key in config)
    rows = [(key, [config.get(key, "–") for config in flat]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def _class_order(runs: Sequence[Run], name: str) -> int:
    return min(run.labels.names.index(name) for run in runs if name in run.labels.names)
