"""Pictures of a benchmark: test Jac against the epoch, and predictions side by side."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator

from jcas.benchmark.grid import UPPER_BOUND, Cell, Grid
from jcas.benchmark.noisy_sets import CLEAN, NoisySet
from jcas.benchmark.summary import table_order
from jcas.benchmark.tables import method_name, noise_title
from jcas.data import Dataset, Record, open_dataset, read_mask
from jcas.gallery import overlay
from jcas.methods import VARIANTS, method_names

_OWN = "jcas"
_REFERENCES = {UPPER_BOUND, "baseline", _OWN}
_COLOURS = [f"tab:{name}" for name in ("blue", "orange", "green", "purple", "brown", "pink", "olive", "cyan")]
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
_MARKS = tuple("os^vDPX*<>phd")
_MOST_COLUMNS = 3
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 3.0, "labelspacing": 0.35}
_TILE, _LEFT, _TOP, _BOTTOM = 1.3, 1.3, 0.52, 0.3  # inches


def draw_curves(summary: Mapping[str, Any], out: Path) -> list[Path]:
    """``curves.png`` and ``curves.svg``; nothing where nothing was watched."""
    figure = curves_figure(summary)
    return [_save(figure, out / f"curves.{suffix}") for suffix in ("png", "svg")] if figure else []


def curves_figure(summary: Mapping[str, Any]) -> Figure | None:
    """One panel per dataset and noise with the curves of all methods that have a row in the table.

    Variants of JCAS have panels of their own, below the others, so that the comparison of methods stays readable.
    """
    several = len(summary["datasets"]) > 1
    panels = []
    for dataset in summary["datasets"]:
        for group in dataset["noises"]:
            scored = {UPPER_BOUND, *(entry["method"] for entry in group["methods"])}
            lines = [line for line in group["curves"] if line["method"] in scored]
            title = noise_title(group["noise"])
            panels.append(_CurvePanel(f"{dataset['dataset']}: {title}" if several else title, lines))
    blocks = _curve_blocks(panels)
    if not blocks:
        return None
    styles = line_styles(method for block in blocks for panel in block.panels for method in panel.methods())
    widths = [max(block.width() for block in blocks), max(block.legend_width() for block in blocks)]
    heights = [block.height() for block in blocks]
    figure = Figure(figsize=(sum(widths), sum(heights) + 0.3), dpi=150, layout="constrained")
    figure.suptitle("For looking only: no epoch was chosen by these curves", fontsize=8, color="0.4")
    parts = figure.subfigures(len(blocks), 2, squeeze=False, width_ratios=widths, height_ratios=heights)
    for (part, beside), block in zip(parts, blocks, strict=True):
        block.draw(part, styles, f"{summary['settings']['watch']} Jac (%)", titled=len(blocks) > 1)
        handles = [Line2D([], [], **styles[method], label=_line_name(method)) for method in block.methods()]
        beside.legend(handles=handles, loc="upper left", **_LEGEND)
    return figure


@dataclass(frozen=True)
class _CurvePanel:
    """The curves under one noise."""

    title: str
    lines: list[Mapping[str, Any]]

    def methods(self) -> list[str]:
        return sorted((line["method"] for line in self.lines), key=table_order)

    def only(self, methods: Collection[str]) -> _CurvePanel:
        """The same with the lines of these methods."""
        return replace(self, lines=[line for line in self.lines if line["method"] in methods])

    def draw(self, axis: Axes, styles: Mapping[str, Mapping[str, Any]]) -> None:
        for line in sorted(self.lines, key=lambda line: styles[line["method"]]["zorder"]):
            mean, epochs, style = np.array(line["mean"], float), np.array(line["epochs"]), dict(styles[line["method"]])
            step = max(1, len(epochs) // 6)  # a few marks for each line, not all at the same epochs
            style["markevery"] = (table_order(line["method"])[0] % step, step)
            if len(epochs) == 1:
                style["marker"] = style["marker"] or "o"
            axis.plot(epochs, mean, **style)
            if any(deviation is not None for deviation in line["std"]):
                spread = np.array([deviation or 0.0 for deviation in line["std"]])
                low, high = np.clip((mean - spread, mean + spread), 0, 100)
                axis.fill_between(epochs, low, high, color=style["color"], alpha=0.1, lw=0, zorder=1)
        axis.set_title(self.title, fontsize=9)
        axis.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        axis.grid(color="0.92", lw=0.6)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True)
class _CurveBlock:
    """Panels that share a legend, which stands beside them."""

    title: str
    panels: list[_CurvePanel]

    def methods(self) -> list[str]:
        return sorted({method for panel in self.panels for method in panel.methods()}, key=table_order)

    def shape(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        columns = min(len(self.panels), _MOST_COLUMNS)
        return -(-len(self.panels) // columns), columns

    def width(self) -> float:
        """Inches of the panels."""
        columns = self.shape()[1]
        return 5.2 if columns == 1 else 3.6 * columns

    def legend_width(self) -> float:
        """Inches of the longest name, with its line and some space."""
        widths = [TextPath((0, 0), _line_name(method), size=8).get_extents().width for method in self.methods()]
        return max(widths) / 72 + 0.7

    def height(self) -> float:
        """Inches of the panels or of the legend, whichever is higher."""
        return max(2.9 * self.shape()[0] + 0.3, 0.165 * len(self.methods()) + 0.2)

    def draw(self, part: SubFigure, styles: Mapping[str, Mapping[str, Any]], score: str, *, titled: bool) -> None:
        rows, columns = self.shape()
        axes = part.subplots(rows, columns, squeeze=False)
        for axis, panel in zip(axes.flat, self.panels, strict=False):
            panel.draw(axis, styles)
        for place, axis in enumerate(axes.flat):
            axis.set_visible(place < len(self.panels))
            if place + columns >= len(self.panels):  # nothing below
                axis.set_xlabel("epoch", fontsize=8)
        for row in axes:
            row[0].set_ylabel(score, fontsize=8)
        if titled:
            part.suptitle(self.title, fontsize=10, fontweight="bold", x=0.01, ha="left")


def _curve_blocks(panels: Sequence[_CurvePanel]) -> list[_CurveBlock]:
    """Methods, then JCAS and its variants; what both would show is drawn once where there is nothing else."""
    methods, variants = [], []
    for panel in panels:
        names = set(panel.methods())
        own = {name for name in names if _is_variant(name)}
        if names - own - _REFERENCES or (names and not own):
            methods.append(panel.only(names - own))
        if own:
            variants.append(panel.only(own | _REFERENCES))
    titled = {"Methods": methods, "JCAS without one of its parts, and its other forms": variants}
    return [_CurveBlock(title, chosen) for title, chosen in titled.items() if chosen]


def _is_variant(method: str) -> bool:
    return VARIANTS[method][0] == _OWN if method in VARIANTS else method.startswith(f"{_OWN}_")


def _line_name(method: str) -> str:
    return method_name(method).removeprefix(f"{_OWN} ") if method.startswith(f"{_OWN}_no_") else method_name(method)


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


def line_styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The look of each method's curve: no two alike, and the same in every picture of one version.

    JCAS is a thick red line, the baseline a black and the upper bound a grey one. All others differ in colour, dashes
    or marks; the numbers of colours and of marks have no common divisor, so that pairs of them repeat late.
    """
    styles: dict[str, dict[str, Any]] = {}
    unknown = sorted(set(methods) - {UPPER_BOUND, *method_names()})
    others = [method for method in (*method_names(), *unknown) if method not in _REFERENCES]
    for place, method in enumerate(others):
        styles[method] = {
            "color": _COLOURS[place % len(_COLOURS)],
            "ls": _DASHES[place // len(_COLOURS) % len(_DASHES)],
            "marker": _MARKS[place % len(_MARKS)],
            "markersize": 4,
            "markeredgewidth": 0.0,
            "lw": 1.0,
            "zorder": 2,
        }
    plain = {"marker": None, "markersize": 5}
    styles[UPPER_BOUND] = {"color": "0.55", "ls": (0, (1, 1)), "lw": 2.0, "zorder": 3, **plain}
    styles["baseline"] = {"color": "black", "ls": (0, (5, 1.5)), "lw": 1.7, "zorder": 4, **plain}
    styles[_OWN] = {"color": "tab:red", "ls": "-", "lw": 2.4, "zorder": 5, **plain}
    return styles


def _save(figure: Figure, path: Path) -> Path:
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, format=path.suffix[1:])
    os.replace(partial, path)
    return path
