"""Pictures of a benchmark: test Jac against the epoch, and predictions side by side."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
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
from jcas.benchmark.summary import table_order
from jcas.benchmark.tables import method_name
from jcas.data import Dataset, Record, open_dataset, read_mask
from jcas.gallery import overlay

_LINE_STYLES = ("-", "--", ":")
_OWN = "jcas"
_TILE, _LEFT, _TOP, _BOTTOM = 1.3, 1.3, 0.52, 0.3  # inches


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
    """``qualitative.png``: a row each for image, truth, noisy label and every method; columns are test images."""
    panels = []
    for name in dict.fromkeys(found.dataset for found in grid.sets):
        sets = [found for found in grid.sets if found.dataset == name and found.noise != CLEAN]
        sets = [found for found in sets if _shown_cells(grid, found).keys() - {UPPER_BOUND}]
        if sets:
            panels.append(_Panel(name, sets, [_pick(open_dataset(grid.data(found)), len(sets)) for found in sets]))
    if not panels:
        return []
    sizes = [panel.size(grid) for panel in panels]
    figure = Figure(figsize=(max(width for width, _ in sizes), sum(height for _, height in sizes)), dpi=110)
    parts = figure.subfigures(len(panels), 1, squeeze=False, height_ratios=[height for _, height in sizes])[:, 0]
    for part, panel, (width, height) in zip(parts, panels, sizes, strict=True):
        panel.draw(part, grid, width=width / figure.get_figwidth(), height=height)
    return [_save(figure, out / "qualitative.png")]


@dataclass(frozen=True)
class _Panel:
    """The pictures of one dataset."""

    name: str
    sets: list[NoisySet]
    picked: list[tuple[Dataset, list[Record]]]  # for each set

    def methods(self, grid: Grid) -> list[str]:
        """All methods with a picture, the upper bound first."""
        return sorted({method for one in self.sets for method in _shown_cells(grid, one)}, key=table_order)

    def widths(self) -> list[float]:
        """Inches of each image when all are ``_TILE`` high."""
        sizes = [dataset.size(record) for dataset, records in self.picked for record in records]
        return [_TILE * columns / rows for rows, columns in sizes]

    def size(self, grid: Grid) -> tuple[float, float]:
        """Width and height in inches."""
        width = _LEFT + sum(self.widths()) + 0.04 * len(self.widths())
        return width, _TOP + (3 + len(self.methods(grid))) * (_TILE + 0.04) + _BOTTOM

    def draw(self, part: Any, grid: Grid, *, width: float, height: float) -> None:
        """Draw into a part of the figure; ``width`` is the share of it that this dataset needs."""
        methods = self.methods(grid)
        total = part.bbox.width / part.figure.dpi
        space = {"left": _LEFT / total, "right": width, "bottom": _BOTTOM / height, "top": 1 - _TOP / height}
        columns = [(found, dataset, r) for found, (dataset, rs) in zip(self.sets, self.picked, strict=True) for r in rs]
        layout = {**space, "wspace": 0.03, "hspace": 0.03, "width_ratios": self.widths()}
        axes = part.subplots(3 + len(methods), len(columns), squeeze=False, gridspec_kw=layout)
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        for column, (found, dataset, record) in zip(axes.T, columns, strict=True):
            cells = _shown_cells(grid, found)
            sample = dataset.load(record, clean=True)
            assert sample.clean is not None
            picture = sample.image if len(sample.image) == 3 else sample.image[:1].expand(3, -1, -1)
            column[0].imshow(picture.permute(1, 2, 0).numpy())
            masks = [_prediction(grid, cells[method], record) if method in cells else None for method in methods]
            grey = 0.8 * sample.image.mean(0, keepdim=True)  # colours stand out, the anatomy stays
            for axis, mask in zip(column[1:], [sample.clean, sample.noisy, *masks], strict=True):
                if mask is not None:
                    axis.imshow(overlay(grey, mask, dataset.labels.colours, opacity=0.7))
            rows, across = closeup(sample.clean, dataset.labels.ignore)
            for axis in column:
                axis.set(xlim=across, ylim=rows[::-1])
        for axis, title in zip(axes[:, 0], ["image", "truth", "noisy label", *methods], strict=True):
            axis.set_ylabel(textwrap.fill(method_name(title), 18), fontsize=8, rotation=0, ha="right", va="center")
        for place, (found, _, _) in enumerate(columns):
            if place == 0 or columns[place - 1][0] is not found:
                axes[0, place].set_title(found.noise, fontsize=8, loc="left", pad=4)
        part.suptitle(self.name, fontsize=10, fontweight="bold", x=space["left"], ha="left", y=1 - 0.06 / height)
        labels = self.picked[0][0].labels
        patches = [
            Patch(color=(red / 255, green / 255, blue / 255), label=name)
            for name, (red, green, blue) in zip(labels.foreground, labels.colours[1:], strict=True)
        ]
        corner = {"loc": "lower left", "bbox_to_anchor": (space["left"], 0.04 / height), "borderpad": 0.0}
        part.legend(handles=patches, ncols=6, frameon=False, fontsize=8, **corner)


def closeup(truth: torch.Tensor, ignore: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Rows and columns of a window, shaped like the image, that shows all objects and half of their extent around."""
    objects = ((truth != 0) & (truth != ignore)).nonzero()
    if not len(objects):
        return (-0.5, truth.shape[0] - 0.5), (-0.5, truth.shape[1] - 0.5)
    first, last = objects.amin(0).tolist(), objects.amax(0).tolist()
    share = max((low - high + 1) / size for high, low, size in zip(first, last, truth.shape, strict=True))
    share = min(1.0, max(0.25, 2 * share))

    def window(axis: int) -> tuple[float, float]:
        extent = share * truth.shape[axis]
        start = (first[axis] + last[axis] + 1 - extent) / 2
        start = min(max(0.0, start), truth.shape[axis] - extent)
        return start - 0.5, start + extent - 0.5

    return window(0), window(1)


def _shown_cells(grid: Grid, found: NoisySet) -> dict[str, Cell]:
    """The first finished seed of each method."""
    cells: dict[str, Cell] = {}
    for cell in grid.cells:
        if cell.dataset == found.dataset and cell.noise in (found.noise, CLEAN) and grid.is_finished(cell):
            cells.setdefault(cell.method, cell)
    return cells


def _pick(dataset: Dataset, noises: int) -> tuple[Dataset, list[Record]]:
    """Images of the scored split that show the most classes, evenly spread over it."""
    records = dataset.split("test") or dataset.split("val")
    shown = {}
    for record in records:
        truth = dataset.load(record, clean=True).clean
        assert truth is not None
        shown[record.id] = len(set(truth.unique().tolist()) - {0, dataset.labels.ignore})
    most = max(shown.values())
    rich = [record for record in records if shown[record.id] == most]
    images = max(2, 6 // noises)
    places = np.unique(np.linspace(0, len(rich) - 1, images + 2).round().astype(int)[1:-1])
    return dataset, [rich[place] for place in places]


def _prediction(grid: Grid, cell: Cell, record: Record) -> torch.Tensor:
    folder = grid.folder(cell) / "masks"
    if record.slice_index is None:
        return read_mask(folder / f"{record.id}.png")
    return read_mask(folder / record.image.name, slice_index=record.slice_index)


def _styles(methods: Mapping[str, None]) -> dict[str, dict[str, Any]]:
    """Nine colours, then the same dashed and dotted; the upper bound is a grey line, JCAS a thick one."""
    colours = [colour for colour in matplotlib.colormaps["tab10"].colors if len(set(colour)) > 1]  # type: ignore[attr-defined]
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
