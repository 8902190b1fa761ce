"""The report on a benchmark: who wins under which noise, tables, curves, pictures and how the labels were wrong."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from jcas.report.charts import Chart, Series, line_chart
from jcas.report.collect import read_run
from jcas.report.page import render_page, write_page
from jcas.report.training import matrix_views

COLOURS = 8
"""Number of line colours that the style sheet defines; later methods get them again, dashed."""

_SUMMARY, _PICTURES, _GRID = "table.json", "qualitative.png", "grid.json"
_LARGEST_SIDE = 16_383  # of a WebP


def is_benchmark(folder: Path) -> bool:
    """Whether a folder holds the tables of a benchmark."""
    return (Path(folder) / _SUMMARY).is_file()


def build_benchmark_report(folder: Path, out: Path, *, title: str = "Benchmark on noisy masks") -> Path:
    """Write one self-contained HTML file about a benchmark folder."""
    folder = Path(folder)
    if not is_benchmark(folder):
        raise ValueError(f"not a benchmark folder: {folder} (it has no {_SUMMARY})")
    try:
        summary = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / _SUMMARY} is not valid JSON: {error}") from error
    if not isinstance(summary, dict):
        raise ValueError(f"{folder / _SUMMARY}: of an older version; jcas benchmark --out {folder} --tables renews it")
    methods = dict.fromkeys(
        line["method"]
        for dataset in summary["datasets"]
        for group in dataset["noises"]
        for line in (*group["methods"], *group["curves"])
    )
    colours = {method: position for position, method in enumerate(methods)}
    context: dict[str, Any] = {
        "title": title,
        "noise_title": _noise_title,
        "summary": summary,
        "verdicts": [_verdict(d, g) for d in summary["datasets"] for g in d["noises"]],
        "overviews": [_overview(dataset) for dataset in summary["datasets"] if len(dataset["noises"]) > 1],
        "charts": [
            chart
            for dataset in summary["datasets"]
            for group in dataset["noises"]
            if (chart := _chart(summary, dataset["dataset"], group, colours))
        ],
        "pictures": _picture(folder / _PICTURES),
        "matrices": _matrices(folder, summary["datasets"]),
        "seeds": sorted({cell["seed"] for cell in _finished(folder)}),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "has_paper": any(
            entry["jac"]["mean"]["paper"] is not None
            for dataset in summary["datasets"]
            for group in dataset["noises"]
            for entry in group["methods"]
        ),
    }
    return write_page(render_page("benchmark.html", context), out)


def _noise_title(noise: str) -> str:
    return "labels as given" if noise == "none" else noise


def _verdict(dataset: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    """Who leads under one noise, and by how much over the baseline."""
    scored = {e["method"]: e["jac"]["mean"]["mean"] for e in group["methods"]}
    scored = {method: value for method, value in scored.items() if value is not None}
    if not scored:
        return f"{dataset['dataset']}, {_noise_title(group['noise'])}: nothing could be scored."
    best = max(scored, key=lambda method: scored[method])
    name = f"{dataset['dataset']}, {_noise_title(group['noise'])}"
    sentence = f"{name}: {best} reaches {scored[best]:.2f} % mean Jaccard"
    if best == "baseline" and len(scored) > 1:
        sentence += "; no method beats the baseline"
    elif "baseline" in scored and best != "baseline":
        sentence += f", {scored[best] - scored['baseline']:.2f} points above the baseline"
    upper = dataset["upper_bound"]
    if upper and upper["jac"]["mean"]["mean"] is not None:
        sentence += f" (true labels: {upper['jac']['mean']['mean']:.2f})"
    return sentence + "."


def _overview(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Mean Jac of every method under every noise; None where the cell is missing."""
    by_noise = [{entry["method"]: entry["jac"]["mean"] for entry in group["methods"]} for group in dataset["noises"]]
    rows = [(method, [found.get(method) for found in by_noise]) for method in dataset["methods"]]
    if dataset["upper_bound"]:
        rows.insert(0, ("upper_bound", [dataset["upper_bound"]["jac"]["mean"]] * len(by_noise)))
    noises = [_noise_title(group["noise"]) for group in dataset["noises"]]
    return {"dataset": dataset["dataset"], "noises": noises, "rows": rows}


def _chart(
    summary: Mapping[str, Any], dataset: str, group: Mapping[str, Any], colours: Mapping[str, int]
) -> Chart | None:
    lines = [
        Series(
            line["method"].replace("_", " "),
            tuple(zip(map(float, line["epochs"]), line["mean"], strict=True)),
            colours[line["method"]] % COLOURS,
            dashed=colours[line["method"]] >= COLOURS,
        )
        for line in group["curves"]
    ]
    title = f"{dataset}, {_noise_title(group['noise'])}: mean Jaccard on {summary['settings']['watch']}, %"
    note = "For looking only: it never selects the epoch. Mean over seeds."
    return line_chart(title, lines, x_label="epoch", note=note)


def _finished(folder: Path) -> list[dict[str, Any]]:
    """The cells that have results; none where only the tables of a benchmark were kept."""
    if not (folder / _GRID).is_file():
        return []
    cells = json.loads((folder / _GRID).read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if (folder / "cells" / cell["name"] / "results.json").is_file()]


def _matrices(folder: Path, datasets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the first seed of each method has learnt of each noise, beside the truth where it is known."""
    first: dict[tuple[str, str, str], dict[str, Any]] = {}
    for cell in sorted(_finished(folder), key=lambda cell: int(cell["seed"])):
        first.setdefault((cell["dataset"], cell["noise"], cell["method"]), cell)
    found = []
    rows = [
        (dataset["dataset"], group["noise"], entry["method"])
        for dataset in datasets
        for group in dataset["noises"]
        for entry in group["methods"]
    ]
    for name, noise, method in (row for row in rows if row in first):  # of some only the row was kept
        run = read_run(folder / "cells" / first[name, noise, method]["name"])
        views = [view for view in matrix_views(run) if view.learnt]
        if views:
            found.append({"name": f"{name}, {_noise_title(noise)}: {method}", "views": views})
    return found


def _picture(file: Path) -> str | None:
    """The picture as base64 WebP, which is a fraction of the PNG."""
    if not file.is_file():
        return None
    image = Image.open(file).convert("RGB")
    image.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, format="WEBP", quality=82, method=2)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
