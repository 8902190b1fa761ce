"""Curves of a benchmark: Jac of the watched split against the epoch."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator

from jcas.benchmark.grid import UPPER_BOUND
from jcas.benchmark.summary import ABLATION, table_order
from jcas.benchmark.tables import method_name, noise_title
from jcas.methods import VARIANTS, method_names

_OWN = "jcas"
_REFERENCES = {UPPER_BOUND, "baseline", _OWN}
_COLOURS = [f"tab:{name}" for name in ("blue", "orange", "green", "purple", "brown", "pink", "olive", "cyan")]
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
_MARKS = tuple("os^vDPX*<>phd")
_MOST_COLUMNS = 3
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 3.0, "labelspacing": 0.35}


def draw_curves(summary: Mapping[str, Any], out: Path) -> list[Path]:
    """``curves.png`` and ``curves.svg``; nothing where nothing was watched."""
    figure = curves_figure(summary)
    return [save(figure, out / f"curves.{suffix}") for suffix in ("png", "svg")] if figure else []


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
    return method_name(method).removeprefix(f"{_OWN} ") if method.startswith(ABLATION) else method_name(method)


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


def save(figure: Figure, path: Path) -> Path:
    """Write a picture whole or not at all."""
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, format=path.suffix[1:])
    os.replace(partial, path)
    return path
