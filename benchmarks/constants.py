"""What hangs on the constants that no noisy label could choose: each made smaller and larger, one at a time.

    python benchmarks/constants.py --work runs/grid --jobs 2 --docs      # 40 minutes on two cores of 2026; resumable

Constants of what the image says were set with true masks in sight (docs/METHOD.md, how it was developed). Were they
tuned to these sets, other values would lose what JCAS gains. Trains JCAS again, seed 0, with one constant half or twice
as large, on the very data of the finished cells of ``benchmarks/grid.py`` below ``--work``, beside whose scores its own
stand (train them by the same commit: the table names all). Only those constants are tried on a set that its runs use:
looks on ellipses of cardiac MRI and on nodules, colours on blood cells.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from documents import read_section, write_section
from grid import finished, kept_rows

from jcas.benchmark.cells import run_cell
from jcas.run import torch_threads

ELLIPSE, NODULES, CELLS = ("acdc", "ellipse"), ("lidc", "none"), ("wbc", "sfda:wbc1_source")
SETS = (ELLIPSE, NODULES, CELLS)


@dataclass(frozen=True)
class Constant:
    """A number of the code: ``module:NAME``, or ``module:function.keyword`` for the default of a keyword."""

    place: str
    meaning: str
    sets: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """As its module calls it."""
        return self.place.partition(":")[2]

    def value(self) -> float:
        """As the code has it."""
        module, _, name = self.place.partition(":")
        function, _, keyword = name.partition(".")
        found: Any = getattr(import_module(module), function)
        return float(found.__kwdefaults__[keyword] if keyword else found)

    def change(self, factor: float) -> None:
        """Multiply it in this process, also where another module has imported it by name."""
        module, _, name = self.place.partition(":")
        function, _, keyword = name.partition(".")
        found: Any = getattr(import_module(module), function)
        if keyword:
            found.__kwdefaults__[keyword] *= factor
            return
        value = type(found)(found * factor)
        for other in [other for called, other in sys.modules.items() if called.partition(".")[0] == "jcas"]:
            if vars(other).get(name) is found:
                setattr(other, name, value)


CONSTANTS = (
    Constant("jcas.core.appearance:local_appearance.window", "neighbourhood of a class", (ELLIPSE, NODULES)),
    Constant("jcas.core.appearance:REACH", "how far from its labels a class may be found", (ELLIPSE, NODULES)),
    Constant("jcas.core.appearance:FLOOR", "least deviation of a class's colours", (ELLIPSE, NODULES)),
    Constant("jcas.core.appearance:refined_by_appearance.power", "strength of looks in refinement", (ELLIPSE, NODULES)),
    Constant("jcas.core.outlines:LEAST_CONTRAST", "what looks must be worth (1: never)", (ELLIPSE, NODULES)),
    Constant("jcas.core.outlines:WORTH", "probability that makes a pixel worth keeping", (ELLIPSE,)),
    Constant("jcas.core.outlines:outline_thresholds.least_shift", "pixels that move an outline", (ELLIPSE, NODULES)),
    Constant("jcas.core.outlines:QUIET_SHIFT", "pixels that show a habit", (NODULES,)),
    Constant("jcas.methods.noise_counts:_MOST_ELLIPSES", "share of ellipses that shows a habit", (ELLIPSE,)),
    Constant("jcas.methods.witness:_LEAST_INFORMED", "what the witness must know of a class", (CELLS,)),
    Constant("jcas.methods.witness:_MOST_DENIED", "cores that it may deny", (CELLS,)),
    Constant("jcas.methods.witness:_LEAST_COLOUR", "colour that lets it speak", (CELLS,)),
    Constant("jcas.methods.witness:WIDTH", "its width", (CELLS,)),
)
FACTORS = (0.5, 2.0)


def folder_of(work: Path, part: str, constant: Constant, factor: float) -> Path:
    return work / "constants" / f"{part}__{constant.name.replace('.', '-')}__x{factor:g}"


def train(cell: Path, out: Path, constant: Constant, factor: float) -> bool:
    """The run of a finished cell again, with another value of a constant; in a process of its own."""
    torch_threads(1)
    constant.change(factor)
    values = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    return run_cell(values, out)


def jobs_of(work: Path, parts: list[str]) -> Iterator[tuple[Path, Path, Constant, float]]:
    """What there is to train: cell, folder, constant, factor."""
    for part, noise in SETS:
        cell = finished(work, part, noise).get("jcas", {}).get(0)
        if cell is None or part not in parts:
            continue
        for constant in CONSTANTS:
            if (part, noise) in constant.sets:
                for factor in FACTORS:
                    yield cell, folder_of(work, part, constant, factor), constant, factor


def results_of(folder: Path) -> dict[str, Any]:
    """The results of a run, nothing if it is not finished."""
    path = folder / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def table(work: Path) -> str:
    """A line for each constant: its value, and for each set the scores with half and with twice of it."""
    cells = {part: finished(work, part, noise).get("jcas", {}).get(0) for part, noise in SETS}
    own = {part: results_of(cell) for part, cell in cells.items() if cell}
    shown = [(part, noise) for part, noise in SETS if part in own]
    lines = [
        "| constant | is | " + " | ".join(f"{part}, {noise.partition(':')[0]}" for part, noise in shown) + " |",
        "|---|--:|" + "--:|" * len(shown),
    ]
    commits = {str(results["commit"] or "–") for results in own.values()}
    for constant in CONSTANTS:
        scores = []
        for part, _ in shown:
            both = [results_of(folder_of(work, part, constant, factor)) for factor in FACTORS]
            commits |= {str(results["commit"] or "–") for results in both if results}
            jac = [f"{results['jac']['mean']:.1f}" if results else "–" for results in both]
            scores.append(", ".join(jac) if any(both) else "–")
        if set(scores) != {"–"}:
            lines.append(
                f"| {constant.meaning} (`{constant.name}`) | {constant.value():g} | " + " | ".join(scores) + " |"
            )
    lines.append("| JCAS as it is | | " + " | ".join(f"{own[part]['jac']['mean']:.1f}" for part, _ in shown) + " |")
    plain = [kept_rows(part, noise).get("baseline", {}).get("by_seed", {}).get("0") for part, noise in shown]
    lines.append("| baseline | | " + " | ".join("–" if jac is None else f"{jac:.1f}" for jac in plain) + " |")
    return "\n".join(
        [*lines, "", f"Half of the constant, twice the constant; seed 0, commit {', '.join(sorted(commits))}."]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/grid"), help="where benchmarks/grid.py has trained")
    parser.add_argument("--parts", nargs="+", choices=[part for part, _ in SETS], default=[part for part, _ in SETS])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--tables", action="store_true", help="train nothing")
    parser.add_argument("--docs", action="store_true", help="write into docs/METHOD.md")
    options = parser.parse_args()
    if options.docs:
        read_section("docs/METHOD.md", "constants")  # not after hours
    work = options.work.resolve()
    jobs = list(jobs_of(work, options.parts))
    if not jobs:
        parser.error(f"{work} has no finished cell of jcas, seed 0; train one by benchmarks/grid.py")
    failed = []
    if not options.tables:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
            runs = [(pool.submit(train, *job), job[1]) for job in jobs]
            for done, (run, folder) in enumerate(runs, 1):
                if not run.result():
                    failed.append(f"failed: {folder} (error.txt)")
                print(f"{done}/{len(runs)} {folder.name}", flush=True)
    print(table(work))
    if options.docs:
        write_section("docs/METHOD.md", "constants", table(work))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
