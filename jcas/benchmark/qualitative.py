"""Predictions of every method on some test images: one block for each noise, one place in its grid for each method."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from PIL import Image

from jcas.benchmark.figures import save
from jcas.benchmark.grid import UPPER_BOUND, Cell, Grid
from jcas.benchmark.noisy_sets import AS_THEY_ARE, CLEAN, NoisySet
from jcas.benchmark.summary import table_order
from jcas.benchmark.tables import method_name, noise_title
from jcas.data import Dataset, Record, open_dataset, read_mask
from jcas.gallery import overlay
from jcas.schema import LabelSpace

_DPI = 110
_PAGE_WIDTH, _PAGE_HEIGHT = 14.5, 18.0  # inches; tiles shrink until a dataset fits, as far as they can be read
_TILES = (1.3, 1.2, 1.1, 1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # inches, height of one image
_MARGIN, _SEAM, _GAP, _LINE, _HEADING = 0.12, 0.02, 0.14, 0.15, 0.3  # inches
_IMAGES = {1: 4, 2: 3}
"""By number of noises; two where there are more."""

Window = tuple[tuple[float, float], tuple[float, float]]
"""Rows and columns, each from the edge of the first pixel to that of the last."""


def draw_qualitative(grid: Grid, out: Path) -> list[Path]:
    """``qualitative.png``; nothing where nothing is finished."""
    figure = qualitative_figure(grid)
    return [save(figure, out / "qualitative.png")] if figure else []


def qualitative_figure(grid: Grid) -> Figure | None:
    """Image and truth once for each dataset, then under each noise the label and what every method predicts."""
    names = dict.fromkeys(found.dataset for found in grid.sets)
    sheets = [sheet.fitted() for name in names if (sheet := _sheet(grid, name))]
    if not sheets:
        return None
    height = sum(sheet.height() for sheet in sheets)
    figure = Figure(figsize=(max(sheet.width() for sheet in sheets), height), dpi=_DPI)
    for sheet in sheets:
        sheet.draw(figure, height)
        height -= sheet.height()
    return figure


def closeup(truth: torch.Tensor, ignore: int) -> Window:
    """A window, shaped like the image, that shows all objects and half of their extent around."""
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


@dataclass(frozen=True)
class _Block:
    """Pictures under one heading: a title and, for the place of an image in the sheet, what is shown of it."""

    heading: str
    pictures: dict[str, Callable[[int], Image.Image]]


@dataclass(frozen=True)
class _Sheet:
    """One dataset: blocks of pictures, each picture all chosen images side by side."""

    name: str
    labels: LabelSpace
    windows: list[Window]  # of each image
    blocks: list[_Block]
    tile: float = _TILES[0]

    def fitted(self) -> _Sheet:
        """The same with the largest tiles that a page has room for."""
        sizes = (replace(self, tile=tile) for tile in _TILES)
        return next((sheet for sheet in sizes if sheet.height() <= _PAGE_HEIGHT), replace(self, tile=_TILES[-1]))

    def tile_widths(self) -> list[float]:
        """Inches of each image; all are equally high."""
        return [self.tile * (right - left) / (low - high) for (high, low), (left, right) in self.windows]

    def picture_width(self) -> float:
        return sum(self.tile_widths()) + _SEAM * (len(self.windows) - 1)

    def columns(self) -> int:
        most = max(len(block.pictures) for block in self.blocks)
        fitting = (_PAGE_WIDTH - 2 * _MARGIN + _GAP) // (self.picture_width() + _GAP)
        return max(1, min(most, int(fitting)))

    def rows(self, block: _Block) -> list[list[str]]:
        """Titles of a block as they stand in its grid, broken where they are wider than a picture."""
        letters = max(8, int(self.picture_width() * 15))  # of 8 points
        titles = [textwrap.fill(title, letters) for title in block.pictures]
        return [titles[start : start + self.columns()] for start in range(0, len(titles), self.columns())]

    def row_height(self, titles: Sequence[str]) -> float:
        return max(title.count("\n") + 1 for title in titles) * _LINE + self.tile + 0.08

    def legend_columns(self) -> int:
        widest = max(TextPath((0, 0), name, size=8).get_extents().width for name in self.labels.foreground)
        return max(1, min(len(self.labels.foreground), int((self.width() - 2 * _MARGIN) // (widest / 72 + 0.6))))

    def legend_height(self) -> float:
        return 0.18 * -(-len(self.labels.foreground) // self.legend_columns()) + 0.1

    def width(self) -> float:
        return self.columns() * (self.picture_width() + _GAP) - _GAP + 2 * _MARGIN

    def height(self) -> float:
        rows = sum(self.row_height(titles) for block in self.blocks for titles in self.rows(block))
        return rows + len(self.blocks) * _HEADING + self.legend_height() + _MARGIN

    def draw(self, figure: Figure, top: float) -> None:
        """Draw below ``top``, in inches from the lower edge of the figure."""
        inches = figure.dpi_scale_trans
        bottom = top - self.height()
        for number, block in enumerate(self.blocks):
            if number:
                edges = [_MARGIN, self.width() - _MARGIN]
                rule = Line2D(edges, [top - 0.03] * 2, color="0.8", lw=0.8, transform=inches)
                figure.add_artist(rule)
            size = 9 if number else 11
            figure.text(
                _MARGIN, top - 0.09, block.heading, fontsize=size, fontweight="bold", va="top", transform=inches
            )
            top -= _HEADING
            pictures = iter(block.pictures.values())
            for titles in self.rows(block):
                top -= self.row_height(titles)
                for column, title in enumerate(titles):
                    left, base = _MARGIN + column * (self.picture_width() + _GAP), top + 0.08
                    figure.text(left, base + self.tile + 0.03, title, fontsize=8, va="bottom", transform=inches)
                    self._place(figure, next(pictures), left, base)
        patches = [
            Patch(color=(red / 255, green / 255, blue / 255), label=name)
            for name, (red, green, blue) in zip(self.labels.foreground, self.labels.colours[1:], strict=True)
        ]
        corner: dict[str, Any] = {"bbox_to_anchor": (_MARGIN, bottom + 0.05), "bbox_transform": inches, "borderpad": 0}
        columns = self.legend_columns()
        figure.legend(handles=patches, loc="lower left", ncols=columns, frameon=False, fontsize=8, **corner)

    def _place(self, figure: Figure, shown: Callable[[int], Image.Image], left: float, base: float) -> None:
        """Draw the images of one picture, pixel by pixel."""
        for place, (window, width) in enumerate(zip(self.windows, self.tile_widths(), strict=True)):
            (high, low), (first, last) = window
            box = (first + 0.5, high + 0.5, last + 0.5, low + 0.5)
            pixels = (max(1, round(width * _DPI)), max(1, round(self.tile * _DPI)))
            tile = shown(place).resize(pixels, Image.Resampling.BICUBIC, box=box)
            figure.figimage(np.asarray(tile), round(left * _DPI), round(base * _DPI), origin="upper")
            left += width + _SEAM


def _sheet(grid: Grid, name: str) -> _Sheet | None:
    sets = [found for found in grid.sets if found.dataset == name and found.noise != CLEAN]
    sets = [found for found in sets if _shown_cells(grid, found).keys() - {UPPER_BOUND}]
    if not sets:
        return None
    dataset = open_dataset(grid.data(sets[0]))
    records = _pick(dataset, _IMAGES.get(len(sets), 2))
    samples = [dataset.load(record, clean=True) for record in records]
    greys = [0.8 * sample.image.mean(0, keepdim=True) for sample in samples]  # colours stand out, the anatomy stays
    truths = [sample.clean for sample in samples if sample.clean is not None]  # each: it was asked for

    def image(place: int) -> Image.Image:
        return overlay(samples[place].image, torch.zeros_like(truths[place]), dataset.labels.colours)

    def tinted(masks: Sequence[torch.Tensor]) -> Callable[[int], Image.Image]:
        return lambda place: overlay(greys[place], masks[place], dataset.labels.colours, opacity=0.7)

    def predicted(cell: Cell) -> Callable[[int], Image.Image]:
        return tinted([_prediction(grid, cell, record) for record in records])

    shown = _shown_cells(grid, sets[0])
    given = {"image": image, "truth": tinted(truths)}
    if UPPER_BOUND in shown:
        given[method_name(UPPER_BOUND)] = predicted(shown[UPPER_BOUND])
    blocks = [_Block(name, given)]
    for found in sets:
        label = "label" if found.noise == AS_THEY_ARE else "noisy label"
        pictures = {label: tinted(_noisy_labels(open_dataset(grid.data(found)), records))}
        for method, cell in sorted(_shown_cells(grid, found).items(), key=lambda item: table_order(item[0])):
            if method != UPPER_BOUND:
                pictures[method_name(method)] = predicted(cell)
        blocks.append(_Block(noise_title(found.noise), pictures))
    windows = [closeup(truth, dataset.labels.ignore) for truth in truths]
    return _Sheet(name, dataset.labels, windows, blocks)


def _shown_cells(grid: Grid, found: NoisySet) -> dict[str, Cell]:
    """The first finished seed of each method."""
    cells: dict[str, Cell] = {}
    for cell in grid.cells:
        if cell.dataset == found.dataset and cell.noise in (found.noise, CLEAN) and grid.is_finished(cell):
            cells.setdefault(cell.method, cell)
    return cells


def _pick(dataset: Dataset, images: int) -> list[Record]:
    """Images of the scored split that show the most classes, evenly spread over it."""
    records = dataset.split("test") or dataset.split("val")
    shown = {}
    for record in records:
        truth = dataset.load(record, clean=True).clean
        assert truth is not None
        shown[record.id] = len(set(truth.unique().tolist()) - {0, dataset.labels.ignore})
    most = max(shown.values())
    rich = [record for record in records if shown[record.id] == most]
    places = np.unique(np.linspace(0, len(rich) - 1, images + 2).round().astype(int)[1:-1])
    return [rich[place] for place in places]


def _noisy_labels(dataset: Dataset, records: Sequence[Record]) -> list[torch.Tensor]:
    """The labels that a noisy set has for the same images."""
    own = {record.id: record for record in dataset.records}
    return [dataset.load(own[record.id], clean=False).noisy for record in records]


def _prediction(grid: Grid, cell: Cell, record: Record) -> torch.Tensor:
    folder = grid.folder(cell) / "masks"
    if record.slice_index is None:
        return read_mask(folder / f"{record.id}.png")
    return read_mask(folder / record.image.name, slice_index=record.slice_index)
