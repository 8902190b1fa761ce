"""The command that shows the whole road: `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jcas.cli.options import Seed, examples
from jcas.cli.output import print_results, say


@examples("jcas demo --out demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, runs and report; must not exist.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Show the whole road in minutes: synthetic instruments, ellipse noise, baseline beside JCAS, a report."""
    from jcas.demo import run_demo

    results, page = run_demo(out, seed=seed)
    print_results(results)
    say(f"report: {page}")
