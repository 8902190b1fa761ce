"""Pictures of a benchmark: test Jac against the epoch, and predictions side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from jcas.benchmark.grid import UPPER_BOUND, Cell, Grid
from jcas.benchmark.noisy_sets import CLEAN, NoisySet
from jcas.benchmark.tables import method_name
from jcas.data import Dataset, Record, open_dataset, read_mask
from jcas.gallery import overlay

IMAGES = 3
"""Test images per noise in ``qualitative.png``."""

_LINE_STYLES = ("-", "--", ":")
_OWN = "jcas"
_TILE = 1.5  # inches


def draw_curves(summary: Mapping[str, Any], out: Path) -> list[Path]:
    """``curves.png`` and ``curves.svg``: one panel per dataset and noise; nothing where nothing was watched."""
    panels = [
        (dataset["dataset"], group["noise"], group["curves"])
        for dataset in summary["datasets"]
        for group in dataset["noises"]
        if group["curves"]
    ]
    if not panels:
        return []
    several = len({name for name, _, _ in panels}) > 1
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    styles = _styles(dict.fromkeys(line["method"] for _, _, lines in panels for line in lines))
    legend_rows = -(-len(styles) // (3 * columns))
    size = (4.2 * columns + 0.4, 3.2 * rows + 0.22 * legend_rows + 0.6)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (name, noise, lines) in zip(axes.flat, panels, strict=False):
        for line in lines:
            mean, epochs = np.array(line["mean"], float), np.array(line["epochs"])
            style = styles[line["method"]]
            axis.plot(epochs, mean, **style, marker="o" if len(epochs) == 1 else None, markersize=4)
            if any(deviation is not None for deviation in line["std"]):
                spread = np.array([deviation or 0.0 for deviation in line["std"]])
                axis.fill_between(epochs, mean - spread, mean + spread, color=style["color"], alpha=0.12, lw=0)
        axis.set_title(f"{name}: {noise}" if several else noise, fontsize=10)
        axis.set_xlabel("epoch", fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(color="0.9", lw=0.7)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    for row in axes:
        row[0].set_ylabel(f"{summary['settings']['watch']} Jac (%)", fontsize=9)
    handles = [Line2D([], [], **style, label=method_name(method)) for method, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3 * columns, frameon=False, fontsize=8)
    figure.suptitle("For looking only: no epoch was chosen by these curves", fontsize=9, color="0.4")
    return [_save(figure, out / f"curves.{suffix}") for suffix in ("png", "svg")]


def draw_qualitative(grid: Grid, out: Path) -> list[Path]:
    """``qualitative.png``: image, truth, noisy label and every prediction for some test images of each noise."""
    sets = [found for found in grid.sets if found.noise != CLEAN and _shown_cells(grid, found)]
    if not sets:
        return []
    picked = [_pick(open_dataset(grid.data(found))) for found in sets]
    columns = max(len(_shown_cells(grid, found)) for found in sets) + 3
    heights = []
    for dataset, records in picked:
        rows, cols = dataset.size(records[0])
        heights.append(len(records) * (_TILE * rows / cols + 0.03) + 0.62)
    figure = Figure(figsize=(columns * (_TILE + 0.03), sum(heights)), dpi=110)
    parts = figure.subfigures(len(sets), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, height, found, (dataset, records) in zip(parts, heights, sets, picked, strict=True):
        _draw_set(part, grid, found, dataset, records, columns=columns, height=height)
    return [_save(figure, out / "qualitative.png")]


def _draw_set(
    part: Any, grid: Grid, found: NoisySet, dataset: Dataset, records: Sequence[Record], *, columns: int, height: float
) -> None:
    cells = _shown_cells(grid, found)
    axes = part.subplots(
        len(records),
        columns,
        squeeze=False,
        gridspec_kw={
            "wspace": 0.02,
            "hspace": 0.03,
            "left": 0.01,
            "right": 0.99,
            "bottom": 0.24 / height,
            "top": 1 - 0.38 / height,
        },
    )
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    for row, record in zip(axes, records, strict=True):
        sample = dataset.load(record, clean=True)
        assert sample.clean is not None
        colours = dataset.labels.colours
        nothing = torch.zeros_like(sample.clean)
        masks = [nothing, sample.clean, sample.noisy, *(_prediction(grid, cell, record) for cell in cells)]
        for axis, mask in zip(row, masks, strict=False):
            axis.imshow(overlay(sample.image, mask, colours, opacity=0.65))
    titles = ["image", "truth", "noisy label", *(method_name(cell.method) for cell in cells)]
    for axis, title in zip(axes[0], titles, strict=False):
        axis.set_title(title, fontsize=8, pad=3)
    title = f"{found.dataset}, {found.noise}"
    part.suptitle(title, fontsize=9, fontweight="bold", x=0.01, ha="left", y=1 - 0.03 / height)
    patches = [
        Patch(color=(red / 255, green / 255, blue / 255), label=name)
        for name, (red, green, blue) in zip(dataset.labels.foreground, dataset.labels.colours[1:], strict=True)
    ]
    corner = {"loc": "lower left", "bbox_to_anchor": (0.005, 0), "borderpad": 0}
    part.legend(handles=patches, ncols=8, frameon=False, fontsize=7, **corner)


def _shown_cells(grid: Grid, found: NoisySet) -> list[Cell]:
    """The first finished seed of each method, the upper bound first."""
    cells: dict[str, Cell] = {}
    for cell in grid.cells:
        if cell.dataset == found.dataset and cell.noise in (found.noise, CLEAN) and grid.is_finished(cell):
            cells.setdefault(cell.method, cell)
    if set(cells) <= {UPPER_BOUND}:
        return []
    return sorted(cells.values(), key=lambda cell: cell.method != UPPER_BOUND)


def _pick(dataset: Dataset) -> tuple[Dataset, list[Record]]:
    """Images of the scored split that show the most classes, evenly spread over it."""
    records = dataset.split("test") or dataset.split("val")
    shown = {}
    for record in records:
        truth = dataset.load(record, clean=True).clean
        assert truth is not None
        shown[record.id] = len(set(truth.unique().tolist()) - {0, dataset.labels.ignore})
    most = max(shown.values())
    rich = [record for record in records if shown[record.id] == most]
    places = np.unique(np.linspace(0, len(rich) - 1, IMAGES + 2).round().astype(int)[1:-1])
    return dataset, [rich[place] for place in places]


def _prediction(grid: Grid, cell: Cell, record: Record) -> torch.Tensor:
    folder = grid.folder(cell) / "masks"
    if record.slice_index is None:
        return read_mask(folder / f"{record.id}.png")
    return read_mask(folder / record.image.name, slice_index=record.slice_index)


def _styles(methods: Mapping[str, None]) -> dict[str, dict[str, Any]]:
    """Ten colours, then the same ten dashed and dotted; the upper bound is a grey line, our method a thick one."""
    colours = matplotlib.colormaps["tab10"].colors  # type: ignore[attr-defined]
    styles: dict[str, dict[str, Any]] = {}
    for method in methods:
        if method == UPPER_BOUND:
            styles[method] = {"color": "0.45", "ls": (0, (6, 2)), "lw": 1.4}
        elif method == _OWN:
            styles[method] = {"color": "black", "ls": "-", "lw": 2.2}
        else:
            turn = len(set(styles) - {UPPER_BOUND, _OWN})
            styles[method] = {
                "color": colours[turn % len(colours)],
                "ls": _LINE_STYLES[turn // len(colours) % len(_LINE_STYLES)],
                "lw": 1.4,
            }
    return styles


def _save(figure: Figure, path: Path) -> Path:
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, format=path.suffix[1:])
    os.replace(partial, path)
    return path
