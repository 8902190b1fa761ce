"""What a grid says while it runs: cells done, running and failed, and the time left."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from jcas.benchmark import Grid, plan
from jcas.benchmark.cells import write_error
from jcas.benchmark.progress import GridProgress
from jcas.data.synthetic import write_dataset


@pytest.fixture
def grid(tmp_path) -> Grid:
    """Three cells of four epochs, none begun."""
    truth = write_dataset(tmp_path / "truth", count=12, size=(40, 48), seed=1)
    noises, methods = ["pair_flip:rate=0.3"], ["baseline", "gce", "sce"]
    return plan(tmp_path / "out", [truth], noises=noises, methods=methods, settings={"epochs": 4}, progress=False)


def train(folder: Path, epochs: int, *, finished: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("{}\n" * epochs)
    if finished:
        (folder / "results.json").write_text("{}")


def test_lines_of_a_log(grid):
    page = StringIO()
    first, second, third = grid.cells
    with GridProgress(grid, grid.cells, Console(file=page, width=200)) as watcher:
        assert watcher.line() == "0/3 cells done, 0 running, 0 failed"
        watcher.started(first)
        train(grid.folder(first), 2)
        watcher.clock -= 24  # half a cell in 24 s: two and a half are left
        assert watcher.line() == "0/3 cells done, 1 running, 0 failed, about 2 min left"
        train(grid.folder(first), 4, finished=True)
        watcher.ended(first)
        watcher.started(second)
        write_error(grid.folder(second), "ValueError: no such thing", "details")
        watcher.ended(second)
        assert watcher.line().startswith("1/3 cells done, 0 running, 1 failed, about ")
        watcher.started(third)
        train(grid.folder(third), 4, finished=True)
        watcher.ended(third)
    assert watcher.line().startswith("2/3 cells done, 0 running, 1 failed")
    said = page.getvalue().splitlines()
    assert said[0].startswith("1/3 cells done") and said[0].endswith(f"ended: {first.name}")
    assert said[1] == f"failed: {second.name}: ValueError: no such thing"
    assert said[2].endswith(f"ended: {third.name}") and len(said) == 3


def test_time_left_counts_only_what_this_command_has_done(grid):
    first, second, third = grid.cells
    train(grid.folder(first), 4, finished=True)
    train(grid.folder(second), 3)
    watcher = GridProgress(grid, [second, third], Console(file=StringIO()))
    assert watcher.seconds_left() is None  # nothing yet
    watcher.started(second)
    train(grid.folder(second), 4)
    watcher.clock -= 10  # a quarter of a cell
    assert watcher.seconds_left() == pytest.approx(40, abs=1)


def test_bars_of_running_cells_on_a_terminal(grid):
    page = StringIO()
    with GridProgress(grid, grid.cells, Console(file=page, width=120, force_terminal=True)) as watcher:
        watcher.started(grid.cells[0])
        train(grid.folder(grid.cells[0]), 3)
        watcher.tick()
    assert "epoch 3/4" in page.getvalue() and "0/3 cells done, 1 running" in page.getvalue()


def test_quiet_says_nothing(grid):
    page = StringIO()
    with GridProgress(grid, grid.cells, Console(file=page), quiet=True) as watcher:
        watcher.started(grid.cells[0])
        watcher.ended(grid.cells[0])
    assert page.getvalue() == ""
