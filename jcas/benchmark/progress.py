"""How a grid fares, live on a terminal and line by line in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from jcas.benchmark.cells import epochs_done
from jcas.benchmark.grid import Cell, Grid


class GridProgress:
    """Cells done, running and failed, the epochs of the running ones, and the time left.

    Args:
        grid: whose cells run.
        cells: those that run now; the others are finished.
        console: where to show it; lines instead of bars if it is no terminal.
        quiet: show nothing.
    """

    def __init__(self, grid: Grid, cells: Sequence[Cell], console: Console, *, quiet: bool = False) -> None:
        self.grid = grid
        self.console = console
        self.quiet = quiet
        self.epochs = int(grid.settings["epochs"])
        self.waiting = {cell.name: self._share(cell) for cell in cells}
        self.before = len(grid.cells) - len(cells) + sum(self.waiting.values())
        self.running: dict[str, Cell] = {}
        self.failed: list[Cell] = []
        self.clock = time.monotonic()
        self.bars = Progress(
            TextColumn("  {task.description}"), BarColumn(24), TextColumn("epoch {task.completed:.0f}/{task.total:.0f}")
        )
        self.tasks: dict[str, TaskID] = {}
        self.live: Live | None = None

    def __enter__(self) -> GridProgress:
        if self.console.is_terminal and not self.quiet:
            self.live = Live(console=self.console, refresh_per_second=4, get_renderable=self._render)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def started(self, cell: Cell) -> None:
        """The cell was handed to a process."""
        self.waiting.pop(cell.name, None)
        self.running[cell.name] = cell
        self.tasks[cell.name] = self.bars.add_task(cell.name, total=self.epochs)

    def ended(self, cell: Cell) -> None:
        """The cell has results or an error."""
        self.waiting.pop(cell.name, None)
        self.running.pop(cell.name, None)
        if cell.name in self.tasks:
            self.bars.remove_task(self.tasks.pop(cell.name))
        error = self.grid.error(cell)
        if error is not None:
            self.failed.append(cell)
        if self.quiet:
            return
        if error is not None:
            self.console.print(Text(f"failed: {cell.name}: {error.splitlines()[0]}", style="red"), soft_wrap=True)
        elif self.live is None:
            self.console.print(Text(f"{self.line()}  ended: {cell.name}"), soft_wrap=True)

    def tick(self) -> None:
        """Read how far the running cells are."""
        for name, cell in self.running.items():
            self.bars.update(self.tasks[name], completed=epochs_done(self.grid.folder(cell)))

    def line(self) -> str:
        """The whole grid in one line."""
        total = len(self.grid.cells)
        done = total - len(self.waiting) - len(self.running) - len(self.failed)
        words = [f"{done}/{total} cells done", f"{len(self.running)} running", f"{len(self.failed)} failed"]
        left = self.seconds_left()
        if left is not None:
            words.append(f"about {readable(left)} left")
        return ", ".join(words)

    def seconds_left(self) -> float | None:
        """Time for the rest at the pace so far; None before anything is done."""
        rest = sum(1 - share for share in self.waiting.values())
        rest += sum(1 - self._share(cell) for cell in self.running.values())
        gained = len(self.grid.cells) - rest - self.before
        return (time.monotonic() - self.clock) / gained * rest if gained > 0 else None

    def _share(self, cell: Cell) -> float:
        return min(epochs_done(self.grid.folder(cell)) / self.epochs, 1.0)

    def _render(self) -> Group:
        return Group(Text(self.line(), style="bold"), self.bars)


def readable(seconds: float) -> str:
    """Time as people say it.

    >>> readable(40), readable(130), readable(7500)
    ('40 s', '2 min', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
