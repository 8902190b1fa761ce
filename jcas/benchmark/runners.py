"""Where cells run: in this process, in processes of their own, or on a Ray cluster. Only this module knows Ray.

Every runner takes the cells that are not finished, tells the `Watcher` what happens to them, and returns when all have
ended; one cell's failure is no matter to the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from jcas.benchmark.cells import epochs_done, run_cell, write_error
from jcas.benchmark.grid import Cell, Grid

POLL_SECONDS = 0.3
_ANSWER_SECONDS = 5  # of a cluster that lives
_LOG_TAIL = 4000  # characters


class Watcher(Protocol):
    """Who wants to know how the cells fare."""

    def started(self, cell: Cell) -> None:
        """The cell was handed to a process."""

    def ended(self, cell: Cell) -> None:
        """The cell has results or an error."""

    def tick(self) -> None:
        """Some time has passed."""


def run_inline(grid: Grid, cells: Sequence[Cell], watcher: Watcher) -> None:
    """One after another in this process: for a debugger, and for methods registered at run time.

    Peak memory is then that of the process so far, not of the cell.
    """
    for cell, values in _configured(grid, cells, watcher):
        watcher.started(cell)
        run_cell(values, grid.folder(cell))
        watcher.ended(cell)


@dataclass
class _Process:
    cell: Cell
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def run_locally(grid: Grid, cells: Sequence[Cell], watcher: Watcher, *, jobs: int = 1) -> None:
    """Each cell in a process of its own, ``jobs`` at a time: its memory and its crashes are its own."""
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    waiting, running = _configured(grid, cells, watcher)[::-1], list[_Process]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(grid, *waiting.pop()))
                watcher.started(running[-1].cell)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                _close(grid, one)
                watcher.ended(one.cell)
            watcher.tick()
            time.sleep(POLL_SECONDS if running else 0)
    finally:  # on Ctrl-C: no cell survives its grid
        for one in running:
            one.process.kill()
            one.process.wait()
            one.log.close()


def expect_ray(address: str) -> None:
    """Refuse a HOST:PORT where nobody answers: Ray itself would try for minutes. Other words, like auto, are Ray's."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:  # OverflowError: no such port
        raise ValueError(f"no Ray answers at --address {address}: {error}") from None


def run_on_ray(grid: Grid, cells: Sequence[Cell], watcher: Watcher, *, jobs: int = 1, address: str = "") -> None:
    """Each cell a Ray task that asks for its CPUs and GPU; without an address a Ray of this machine is started.

    The benchmark's folder must be on a file system that all nodes share, and jcas must be installed on them. A cell
    gets a GPU when ``device`` is gpu; with auto it gets none, for Ray hides those that were not asked for.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ValueError("--runner ray needs Ray: pip install -e '.[ray]'") from None
    configured = _configured(grid, cells, watcher)
    threads = int(grid.settings["threads"] or 1)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address:
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            raise ValueError(f"no Ray cluster at --address {address}: {error}") from None
    else:
        ray.init(num_cpus=jobs * threads, include_dashboard=False, **quiet)
    gpus = 1 if grid.settings["device"] == "gpu" else 0
    # A worker process serves one cell only, so that peak memory is the cell's; Ray must not repeat a failure.
    task = ray.remote(num_cpus=threads, num_gpus=gpus, max_calls=1, max_retries=0)(run_cell)
    before = {cell.name: _trace(grid, cell) for cell, _ in configured}
    pending = {task.remote(values, grid.folder(cell)): cell for cell, values in configured}
    try:
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=POLL_SECONDS)
            for cell in pending.values():
                if cell.name in before and _trace(grid, cell) != before[cell.name]:
                    del before[cell.name]
                    watcher.started(cell)
            for reference in done:
                cell = pending.pop(reference)
                try:
                    ray.get(reference)
                except ray.exceptions.RayError as error:  # a lost node, a killed worker
                    write_error(grid.folder(cell), f"{type(error).__name__}: {error}")
                watcher.ended(cell)
            watcher.tick()
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        ray.shutdown()


def _trace(grid: Grid, cell: Cell) -> int | None:
    """What a cell has left on disk: how many epochs, None if not even a folder.

    It changes when the cell runs: at once if it starts afresh, after an epoch if it is resumed.
    """
    folder = grid.folder(cell)
    return epochs_done(folder) if folder.is_dir() else None


def _configured(grid: Grid, cells: Sequence[Cell], watcher: Watcher) -> list[tuple[Cell, dict[str, Any]]]:
    """The cells with their configs; one that cannot have one, as of a method that is gone, fails for itself."""
    found = []
    for cell in cells:
        try:
            found.append((cell, grid.config(cell).model_dump(mode="json")))
        except ValueError as error:
            write_error(grid.folder(cell), f"{type(error).__name__}: {error}")
            watcher.ended(cell)
    return found


def _start(grid: Grid, cell: Cell, values: dict[str, Any]) -> _Process:
    path = grid.out / "logs" / f"{cell.name}.log"
    path.parent.mkdir(exist_ok=True)
    log = path.open("wb")
    threads = str(grid.settings["threads"] or os.cpu_count())
    process = subprocess.Popen(
        [sys.executable, "-m", "jcas.benchmark.worker"],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
    )
    assert process.stdin is not None
    job = {"config": values, "folder": str(grid.folder(cell))}
    with contextlib.suppress(BrokenPipeError):  # it has died already: its exit code tells
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()  # and stays open: see the worker
    return _Process(cell, process, log)


def _close(grid: Grid, one: _Process) -> None:
    """Record the end of a process that could not do so itself."""
    assert one.process.stdin is not None
    one.process.stdin.close()
    one.log.close()
    folder, code = grid.folder(one.cell), one.process.returncode
    if not grid.is_finished(one.cell) and not (folder / "error.txt").is_file():
        ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        log = Path(one.log.name).read_text(encoding="utf-8", errors="replace")
        write_error(folder, f"the process of this cell {ending}", log[-_LOG_TAIL:])
