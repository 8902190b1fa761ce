"""The process of one cell: ``python -m jcas.benchmark.worker``, the cell as one line of JSON on stdin.

Stdin stays open as long as the grid lives. When it closes, the grid is gone, and the cell goes too: a cell that nobody
waits for would meet its own successor in the same folder.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from jcas.benchmark.cells import run_cell

FAILED = 1
ABANDONED = 3


def _leave_with_the_grid() -> None:
    # The raw descriptor: a reader that waits inside sys.stdin would hold its lock when the process ends.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(ABANDONED)


def main() -> None:
    """Run the cell that stdin names."""
    job = json.loads(_first_line())
    threading.Thread(target=_leave_with_the_grid, daemon=True).start()
    sys.exit(0 if run_cell(job["config"], Path(job["folder"])) else FAILED)


def _first_line() -> bytes:
    line = bytearray()
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"\n", b""):
        line += byte
    return bytes(line)


if __name__ == "__main__":
    main()
