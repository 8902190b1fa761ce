"""The comparison of the paper's Table 1 on any dataset: every (dataset, noise, method, seed) trained the same way.

``grid`` plans the cells, ``noisy_sets`` makes their data, ``runners`` train them, ``summary`` reads them, ``tables``,
``figures`` and ``qualitative`` show them. The folder holds ``grid.json``, ``data/``, ``cells/`` (a run folder each),
``logs/`` and the tables, and can be continued, extended and drawn anew at any time.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from jcas.benchmark.figures import draw_curves
from jcas.benchmark.grid import UPPER_BOUND, Cell, Grid, exclusive, plan, read_grid
from jcas.benchmark.progress import GridProgress
from jcas.benchmark.qualitative import draw_qualitative
from jcas.benchmark.runners import expect_ray, run_inline, run_locally, run_on_ray
from jcas.benchmark.summary import collect, summarize
from jcas.benchmark.tables import latex, markdown, noise_rates
from jcas.run import write_bytes, write_json

__all__ = ["UPPER_BOUND", "Cell", "Grid", "check_runner", "exclusive", "plan", "read_grid", "run_grid", "write_tables"]

RUNNERS = ("local", "ray", "inline")


def check_runner(runner: str, address: str = "", jobs: int = 1) -> None:
    """Refuse a runner that does not exist, an address where it has none or nobody answers, and jobs without effect."""
    if runner not in RUNNERS:
        raise ValueError(f"unknown runner {runner!r}, choose one of {', '.join(RUNNERS)}")
    if address and runner != "ray":
        raise ValueError(f"--address {address} belongs to --runner ray, got --runner {runner}")
    if jobs > 1 and runner == "inline":
        raise ValueError(f"--jobs {jobs} belongs to --runner local or ray; inline trains one cell after another")
    if jobs > 1 and address:
        raise ValueError(f"--jobs {jobs}: the cluster at --address {address} decides how many cells run at a time")
    if address:
        expect_ray(address)


def run_grid(
    grid: Grid, *, runner: str = "local", jobs: int = 1, address: str = "", progress: bool = True
) -> list[Cell]:
    """Bring every unfinished cell to its end and return those that failed."""
    check_runner(runner, address, jobs)
    cells = [cell for cell in grid.cells if not grid.is_finished(cell)]
    for cell in cells:  # an old reason must not pass for a new one
        (grid.folder(cell) / "error.txt").unlink(missing_ok=True)
    with GridProgress(grid, cells, Console(stderr=True), quiet=not progress) as watcher:
        if runner == "inline":
            run_inline(grid, cells, watcher)
        elif runner == "ray":
            run_on_ray(grid, cells, watcher, jobs=jobs, address=address)
        else:
            run_locally(grid, cells, watcher, jobs=jobs)
    return [cell for cell in cells if not grid.is_finished(cell)]


def write_tables(grid: Grid) -> list[Path]:
    """Write every table and figure from the cells that are finished; nothing is trained."""
    rows = collect(grid)
    summary = summarize(grid, rows)
    out = grid.out
    write_json(out / "table.json", {**summary, "rows": rows})
    texts = {
        "table.md": markdown(summary),
        "table.tex": latex(summary),
        "noise_rates.md": noise_rates(summary),
    }
    for name, text in texts.items():
        write_bytes(out / name, text.encode())
    written = [out / name for name in ("table.json", *texts)]
    return [*written, *draw_curves(summary, out), *draw_qualitative(grid, out)]
