"""What a benchmark consists of: shared settings, noisy sets, and one cell per (dataset, noise, method, seed).

``grid.json`` holds it all. A later command on the same folder adds cells; once a cell has begun to train, the shared
settings stay as they are, so that every number of a table comes from the same training.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from jcas.benchmark.noisy_sets import (
    CLEAN,
    NoiseSpec,
    NoisySet,
    check_noise,
    label_hash,
    parse_noise,
    prepare,
    prepare_clean,
    set_name,
    wrong_shares,
)
from jcas.config import Config, make_config
from jcas.data import Dataset, open_dataset
from jcas.methods import method_class, method_names
from jcas.models import check_encoder
from jcas.run import write_json

UPPER_BOUND = "upper_bound"
"""The baseline on true labels, as a row of the grid."""

OF_A_CELL = ("data", "method", "options", "labels", "seed")
"""Settings that a cell decides; all others are shared."""

FREE = ("workers", "cache", "threads", "device")
"""Shared settings that may change when a grid continues on another machine."""

DECIDED_BY_THE_NETWORK = ("pretrained", "encoder_learning_rate")
"""Shared settings whose None is a rule that a method with a network of its own answers otherwise than the others."""

_DEFAULTS = {"threads": 1, "watch": "test"}
_GRID_FILE = "grid.json"


@dataclass(frozen=True)
class Cell:
    """One training run of the grid."""

    name: str  # of its folder in cells/
    dataset: str
    noise: str
    method: str
    seed: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What the cell is; its name may stem from an older version."""
        return self.dataset, self.noise, self.method, self.seed


@dataclass(frozen=True)
class Grid:
    """All cells of a benchmark folder and all that they share."""

    out: Path
    settings: Mapping[str, Any]
    sets: tuple[NoisySet, ...] = ()
    cells: tuple[Cell, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)  # DECIDED_BY_THE_NETWORK before any rule; older grids: none

    def folder(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.out / "cells" / cell.name

    def noisy_set(self, cell: Cell) -> NoisySet:
        """What the cell trains on."""
        return next(found for found in self.sets if (found.dataset, found.noise) == (cell.dataset, cell.noise))

    def data(self, noisy_set: NoisySet) -> Path:
        """Folder of a noisy set."""
        return self.out / noisy_set.folder  # an absolute folder stays as it is

    def config(self, cell: Cell) -> Config:
        """The training run of a cell, as `jcas train` starts it: shared settings, its data, its method's defaults."""
        upper = cell.method == UPPER_BOUND
        own = {
            "data": str(self.data(self.noisy_set(cell))),
            "method": "baseline" if upper else cell.method,
            "labels": "clean" if upper else "noisy",
            "seed": cell.seed,
            "options": self._told(cell),
        }
        source = str(self.out / _GRID_FILE)
        config = make_config({**self.settings, **own}, source=source)
        if config.resolved().encoder != config.encoder:  # a network of its own: what the others resolved is not for it
            config = make_config({**self.settings, **self.given, **own}, source=source)
        return config

    def _told(self, cell: Cell) -> dict[str, Any]:
        """What only a benchmark knows of the noise and a method's paper takes for granted, as options of the method."""
        option = None if cell.method == UPPER_BOUND else method_class(cell.method).told_wrong_shares
        shares = self.noisy_set(cell).wrong_shares
        return {} if option is None or shares is None else {option: shares}

    def is_finished(self, cell: Cell) -> bool:
        """Whether the cell needs no more work."""
        return (self.folder(cell) / "results.json").is_file()

    def has_begun(self, cell: Cell) -> bool:
        """Whether the cell has results, or a checkpoint to go on from."""
        return self.is_finished(cell) or (self.folder(cell) / "checkpoints" / "last.ckpt").is_file()

    def error(self, cell: Cell) -> str | None:
        """Why the cell failed, None if it did not."""
        path = self.folder(cell) / "error.txt"
        return path.read_text(encoding="utf-8") if path.is_file() and not self.is_finished(cell) else None

    def write(self) -> None:
        """Write ``grid.json``."""
        content = {
            "settings": dict(self.settings),
            "given": dict(self.given),
            "sets": [found.to_json() for found in self.sets],
            "cells": [asdict(cell) for cell in self.cells],
        }
        write_json(self.out / _GRID_FILE, content)


def read_grid(out: Path) -> Grid:
    """The benchmark that lies in a folder."""
    out = out.resolve()  # cells run in processes with other working folders
    path = out / _GRID_FILE
    if not path.is_file():
        raise ValueError(f"{out}: no benchmark here (no {_GRID_FILE}); give datasets to start one")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sets = tuple(NoisySet(**found) for found in content["sets"])
        cells = tuple(Cell(**found) for found in content["cells"])
        return Grid(out, content["settings"], sets, cells, content.get("given", {}))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error})") from None


def plan(
    out: Path,
    data: Sequence[Path],
    *,
    noises: Sequence[str],
    methods: Sequence[str] = (),
    seeds: int = 1,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Grid:
    """Check everything, make the noisy sets, and add the cells to the grid of ``out``.

    Args:
        out: folder of the benchmark; an existing one is extended.
        data: dataset folders.
        noises: as `parse_noise` reads them.
        methods: names of methods and variants, and ``upper_bound``; all of them by default.
        seeds: number of training seeds, counted from the ``seed`` of the settings (0).
        settings: shared keys of `jcas.config.Config`.
        progress: show bars while noise is made.
    """
    out = out.resolve()
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    methods = list(dict.fromkeys(methods)) or [UPPER_BOUND, *method_names()]
    for method in methods:
        if method != UPPER_BOUND:
            method_class(method)
    first_seed, shared, given = _shared(settings or {})
    datasets = _open(data)
    specs = _distinct([parse_noise(text) for text in noises])
    for dataset in datasets:
        for spec in specs:
            check_noise(spec, dataset)
    grid = _earlier(out, shared, given)
    hashes = {dataset.name: label_hash(dataset) for dataset in datasets}
    _expect_same_sources(grid, datasets, specs, hashes)
    added = []
    for dataset in datasets:
        if UPPER_BOUND in methods:
            added.append(prepare_clean(dataset, out, progress=progress))
        added += [prepare(dataset, spec, out, progress=progress) for spec in specs]
    added = [replace(found, labels=hashes[found.dataset]) for found in added]
    if any(method_class(method).told_wrong_shares for method in methods if method != UPPER_BOUND):
        added = [replace(found, wrong_shares=wrong_shares(open_dataset(out / found.folder))) for found in added]
    else:  # cells that were planned before may still have to be told
        known = {(found.dataset, found.noise): found.wrong_shares for found in grid.sets}
        added = [replace(found, wrong_shares=known.get((found.dataset, found.noise))) for found in added]
    # Seeds outermost: a grid that is stopped early has a whole table of the first seed.
    cells = [
        _cell(found, method, seed)
        for seed in range(first_seed, first_seed + seeds)
        for found in added
        for method in ([UPPER_BOUND] if found.noise == CLEAN else [m for m in methods if m != UPPER_BOUND])
    ]
    sets = {(found.dataset, found.noise): found for found in (*grid.sets, *added)}
    planned = {cell.key for cell in grid.cells}
    new = [cell for cell in cells if cell.key not in planned]
    grid = replace(grid, sets=tuple(sets.values()), cells=(*grid.cells, *new))
    grid.write()
    return grid


@contextlib.contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Keep a second grid out of the folder; the lock falls when this process ends, however it ends.

    A new folder of which nothing came, because the command was refused, is taken away again.
    """
    lock, is_new = out / ".lock", not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with lock.open("w") as file:
            if sys.platform != "win32":  # there is no such lock
                import fcntl

                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ValueError(f"{out}: another benchmark is running in this folder") from None
            yield
    finally:
        if is_new and list(out.iterdir()) == [lock]:
            lock.unlink()
            out.rmdir()


def _cell(noisy_set: NoisySet, method: str, seed: int) -> Cell:
    name = "__".join((set_name(noisy_set.dataset, noisy_set.noise), method, f"s{seed}"))
    return Cell(name, noisy_set.dataset, noisy_set.noise, method, seed)


def _shared(settings: Mapping[str, Any]) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The first seed, the settings of every cell with all rules resolved once for all machines, and `Grid.given`."""
    for key in ("data", "method", "options", "labels"):
        if key in settings:
            raise ValueError(f"{key}: a cell of the grid decides it, leave it out of the shared settings")
    config = make_config({**_DEFAULTS, **settings, "data": ".", "method": "baseline"}, source="benchmark")
    check_encoder(config.encoder)
    if config.devices * config.nodes > 1:
        raise ValueError(f"a cell trains in one process, got devices={config.devices}, nodes={config.nodes}")
    shared = config.resolved().model_dump(mode="json", exclude=set(OF_A_CELL))
    return config.seed, shared, config.model_dump(mode="json", include=set(DECIDED_BY_THE_NETWORK))


def _earlier(out: Path, shared: dict[str, Any], given: dict[str, Any]) -> Grid:
    if not (out / _GRID_FILE).is_file():
        if out.exists() and any(path.name != ".lock" for path in out.iterdir()):
            raise ValueError(f"{out}: exists, is not empty and holds no benchmark; choose another --out")
        return Grid(out, shared, given=given)
    grid = read_grid(out)
    if not any(grid.has_begun(cell) for cell in grid.cells):  # no number comes from its settings
        return replace(grid, settings=shared, given=given)
    # A grid may be older than a setting; its cells then run with the default.
    pairs = [(key, grid.settings.get(key, Config.model_fields[key].default), value) for key, value in shared.items()]
    pairs += [(key, theirs, given[key]) for key, theirs in grid.given.items()]
    for key, theirs, value in pairs:
        if key not in FREE and theirs != value:
            raise ValueError(
                f"{out}: its cells have {key}={theirs!r}, got {value!r}; "
                "keep it, or start another benchmark with another --out"
            )
    return replace(grid, settings=shared)


def _open(data: Sequence[Path]) -> list[Dataset]:
    datasets: dict[str, Dataset] = {}
    for path in data:
        dataset = open_dataset(path)
        if dataset.name in datasets:
            raise ValueError(
                f"{path}: called {dataset.name!r} as {datasets[dataset.name].root} is; "
                "give one of them another name in its dataset.yaml"
            )
        if not (dataset.split("test") or dataset.split("val")):
            raise ValueError(f"{path}: no test or val images to score methods on; split.csv can name some")
        datasets[dataset.name] = dataset
    return list(datasets.values())


def _distinct(specs: Sequence[NoiseSpec]) -> list[NoiseSpec]:
    if not specs:
        raise ValueError("which noise? give --noise NAME, or --noise none for the labels as they are")
    by_label: dict[str, NoiseSpec] = {}
    for spec in specs:
        other = by_label.setdefault(spec.label, spec)
        if spec.source and other.source and other.source.resolve() != spec.source.resolve():
            raise ValueError(f"{other.source} and {spec.source} would both be called {spec.label!r}; rename one run")
    return list(by_label.values())


def _expect_same_sources(
    grid: Grid, datasets: Sequence[Dataset], specs: Sequence[NoiseSpec], hashes: Mapping[str, str]
) -> None:
    """Numbers under one name must come from one dataset, and those under one sfda label from one model."""
    models = {spec.label: spec.source for spec in specs if spec.source is not None}
    for dataset in datasets:
        for found in grid.sets:
            if found.dataset != dataset.name:
                continue
            if _is_elsewhere(found.root, dataset.root):
                raise ValueError(
                    f"{grid.out}: its {dataset.name!r} is {found.root}, got {dataset.root}; "
                    "give this one another name in its dataset.yaml, or choose another --out"
                )
            if found.labels is not None and found.labels != hashes[dataset.name]:
                raise ValueError(
                    f"{grid.out}: images, splits or masks of {dataset.root} have changed since its cells were planned; "
                    "choose another --out"
                )
            if found.noise in models and _is_elsewhere(found.run, models[found.noise]):
                raise ValueError(
                    f"{grid.out}: its {found.noise!r} is {found.run}, got {models[found.noise]}; "
                    "rename this run, or choose another --out"
                )


def _is_elsewhere(stored: str | None, given: Path) -> bool:
    """Whether a folder is surely another than the stored one, which may be unknown, or have moved."""
    return stored is not None and Path(stored).exists() and not given.samefile(stored)
