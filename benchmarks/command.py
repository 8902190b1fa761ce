"""The command line as a user would call it: one core per process, the first failure ends a benchmark."""

from __future__ import annotations

import os
import subprocess
import sys


def jcas(*arguments: str, quiet: bool = False) -> None:
    """Run ``jcas ARGUMENTS``; a quiet one shows what it said only if it failed."""
    command = [sys.executable, "-m", "jcas", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=quiet, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(command)}\n{done.stderr or ''}")
