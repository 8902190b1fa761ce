"""Finished cells -> rows and one summary from which every table, figure and page is made.

``table.json`` holds both: ``rows``, one for each finished cell (its ``results.json`` with the grid's names and
``gap_recovered``), and the table: methods by dataset and noise, with means and deviations over seeds, marks, costs and
the paper's numbers.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jcas.benchmark.grid import UPPER_BOUND, Cell, Grid
from jcas.benchmark.noisy_sets import CLEAN
from jcas.benchmark.paper import TABLE_1, paper_scores
from jcas.methods import METHODS, method_names

MEAN = "mean"
ABLATION = ("jcas_no_", "jcas_with_")
"""How names of methods begin that are JCAS with a part less or more."""

METRICS = ("dice", "jac")
DECIMALS = 2
"""Of the tables; best and second are judged by what is shown."""

Row = dict[str, Any]


def collect(grid: Grid) -> list[Row]:
    """One row per finished cell, in the order of the grid."""
    rows = []
    for cell in grid.cells:
        if not grid.is_finished(cell):
            continue
        results = json.loads((grid.folder(cell) / "results.json").read_text(encoding="utf-8"))
        own = {"cell": cell.name, "dataset": cell.dataset, "noise": cell.noise, "method": cell.method}
        rows.append({**results, **own, "seed": cell.seed})
    for row in rows:
        baseline, upper = _reference(rows, row, "baseline"), _reference(rows, row, UPPER_BOUND)
        row["gap_recovered"] = gap_recovered(row["jac"][MEAN], baseline=baseline, upper_bound=upper)
    return rows


def gap_recovered(jac: float | None, *, baseline: float | None, upper_bound: float | None) -> float | None:
    """Share of the damage of the noise that a method undoes: 0 is the baseline, 1 the upper bound.

    None where the upper bound is not above the baseline: there is no damage to undo.

    >>> gap_recovered(60.0, baseline=50.0, upper_bound=70.0)
    0.5
    """
    if jac is None or baseline is None or upper_bound is None or upper_bound <= baseline:
        return None
    return (jac - baseline) / (upper_bound - baseline)


def summarize(grid: Grid, rows: Sequence[Row]) -> dict[str, Any]:
    """The content of ``table.json`` but its rows."""
    return {
        "settings": dict(grid.settings),
        "versions": sorted({f"{row['version']} ({row['commit'] or 'no commit'})" for row in rows}),
        "noise_rates": [
            {
                "dataset": found.dataset,
                "noise": found.noise,
                "class_noise_rate": found.class_noise_rate,
                "affinity_noise_rate": found.affinity_noise_rate,
            }
            for found in grid.sets
            if found.noise != CLEAN
        ],
        "datasets": [_dataset(grid, rows, name) for name in dict.fromkeys(row["dataset"] for row in rows)],
        "failed": [
            {"cell": cell.name, "error": error.splitlines()[0]}
            for cell in grid.cells
            if (error := grid.error(cell)) is not None
        ],
        "unfinished": [cell.name for cell in grid.cells if not grid.is_finished(cell) and grid.error(cell) is None],
    }


def table_order(method: str) -> tuple[int, str]:
    """Key that sorts methods as every table lists them: the upper bound, then as registered, then by name.

    >>> sorted(["dar", "jcas", "of_an_older_version", "baseline", "upper_bound"], key=table_order)
    ['upper_bound', 'baseline', 'jcas', 'dar', 'of_an_older_version']
    """
    known = [UPPER_BOUND, *method_names()]
    return (known.index(method) if method in known else len(known)), method


def mean_and_deviation(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean, and sample standard deviation where there are two values or more; missing values are left out.

    >>> mean_and_deviation([1.0, 3.0, None])
    (2.0, 1.4142135623730951)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def marks(values: Sequence[float | None]) -> list[str]:
    """``best``, ``second`` or nothing for each value, as the paper marks its columns; equals share a mark.

    >>> marks([1.0, 3.0, None, 2.0])
    ['', 'best', '', 'second']
    """
    shown = [None if value is None else round(value, DECIMALS) for value in values]
    ranks = sorted({value for value in shown if value is not None}, reverse=True)
    names = dict(zip(ranks, ("best", "second"), strict=False)) if len(ranks) > 1 else {}
    return [names.get(value, "") if value is not None else "" for value in shown]


def _reference(rows: Sequence[Row], row: Row, method: str) -> float | None:
    """Mean Jac over seeds of the baseline of the same noise, or of the dataset's upper bound."""
    noise = CLEAN if method == UPPER_BOUND else row["noise"]
    same = [r for r in rows if (r["dataset"], r["noise"], r["method"]) == (row["dataset"], noise, method)]
    return mean_and_deviation([r["jac"][MEAN] for r in same])[0]


def _dataset(grid: Grid, rows: Sequence[Row], name: str) -> dict[str, Any]:
    own = [row for row in rows if row["dataset"] == name]
    classes = own[0]["classes"][1:]
    upper = [row for row in own if row["method"] == UPPER_BOUND]
    noises = [found for found in grid.sets if found.dataset == name and found.noise != CLEAN]
    groups = []
    for found in noises:
        methods = sorted({row["method"] for row in own if row["noise"] == found.noise}, key=table_order)
        entries = [
            _entry(
                [row for row in own if (row["noise"], row["method"]) == (found.noise, method)],
                classes,
                paper_scores(name, found.kind, found.parameters, method),
            )
            for method in methods
        ]
        mark_best(entries, classes)
        _paper_gaps(entries, found.kind)
        if entries:
            truth = next(row["truth"] for row in own if row["noise"] == found.noise)
            curves = _curves(grid, name, found.noise)
            groups.append({"noise": found.noise, "truth": truth, "methods": entries, "curves": curves})
    return {
        "dataset": name,
        "classes": classes,
        "colours": own[0]["colours"],
        "split": own[0]["split"],
        "methods": methods_of(groups),
        "upper_bound": _entry(upper, classes, paper_scores(name, CLEAN, {}, UPPER_BOUND)) if upper else None,
        "noises": groups,
    }


def _entry(rows: Sequence[Row], classes: Sequence[str], paper: Mapping[str, Any] | None) -> dict[str, Any]:
    """One method under one noise, over its seeds."""
    entry: dict[str, Any] = {"method": rows[0]["method"], "seeds": sorted(row["seed"] for row in rows)}
    for metric in METRICS:
        entry[metric] = {}
        for name in (*classes, MEAN):
            mean, deviation = mean_and_deviation([row[metric].get(name) for row in rows])
            shown = None if paper is None else paper[metric].get(name)
            entry[metric][name] = {"mean": mean, "std": deviation, "mark": "", "paper": shown}
    entry["by_seed"] = {str(row["seed"]): row["jac"][MEAN] for row in rows}  # mean Jac, for comparing seed by seed
    entry["commits"] = {str(row["seed"]): row["commit"] for row in rows}  # None outside a checkout
    gap, deviation = mean_and_deviation([row["gap_recovered"] for row in rows])
    told = getattr(METHODS.get(entry["method"]), "told_wrong_shares", None)
    entry["told"] = told is not None and all(told in row["options"] for row in rows)
    entry["gap_recovered"] = {"mean": gap, "std": deviation, "mark": "", "paper": None}
    entry["seconds"] = mean_and_deviation([row["seconds"] for row in rows])[0]
    entry["cpu_seconds"] = mean_and_deviation([row.get("cpu_seconds") for row in rows])[0]
    entry["peak_memory_mb"] = mean_and_deviation([row["peak_memory_mb"] for row in rows])[0]
    return entry


def methods_of(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """All methods with a row under some noise, for tables that have them side by side."""
    return sorted({entry["method"] for group in groups for entry in group["methods"]}, key=table_order)


def mark_best(entries: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Mark best and second of every column in place; JCAS without one of its parts is no competitor of JCAS."""
    competing = [entry for entry in entries if not entry["method"].startswith(ABLATION)]
    for metric in METRICS:
        for name in (*classes, MEAN):
            for entry in entries:
                entry[metric][name]["mark"] = ""
            cells = [entry[metric][name] for entry in competing]
            for cell, mark in zip(cells, marks([cell["mean"] for cell in cells]), strict=True):
                cell["mark"] = mark


def _paper_gaps(entries: Sequence[dict[str, Any]], kind: str) -> None:
    """The same share, from the paper's own numbers."""
    baseline = TABLE_1.get((kind, "baseline"))
    for entry in entries:
        paper = entry["jac"][MEAN]["paper"]
        if paper is not None and baseline is not None:
            entry["gap_recovered"]["paper"] = gap_recovered(
                paper, baseline=baseline["jac"][MEAN], upper_bound=TABLE_1[CLEAN, UPPER_BOUND]["jac"][MEAN]
            )


def _curves(grid: Grid, dataset: str, noise: str) -> list[dict[str, Any]]:
    """Jac of the watched split against the epoch, mean and deviation over seeds; for looking only."""
    lines = []
    cells = [cell for cell in grid.cells if cell.dataset == dataset and cell.noise in (noise, CLEAN)]
    for method in sorted({cell.method for cell in cells}, key=table_order):
        seeds = [_watched(grid, cell) for cell in cells if cell.method == method and grid.is_finished(cell)]
        epochs = sorted({epoch for seed in seeds for epoch in seed})
        points = [mean_and_deviation([seed.get(epoch) for seed in seeds]) for epoch in epochs]
        if points:
            lines.append(
                {
                    "method": method,
                    "epochs": epochs,
                    "mean": [mean for mean, _ in points],
                    "std": [deviation for _, deviation in points],
                }
            )
    return lines


def _watched(grid: Grid, cell: Cell) -> dict[int, float]:
    text = (grid.folder(cell) / "metrics.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {
        record["epoch"]: record["looking_only"]["jac"]
        for record in records
        if record.get("looking_only", {}).get("jac") is not None
    }
