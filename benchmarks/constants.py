"""What hangs on the constants of what the image says: each made smaller and larger, one at a time.

    python benchmarks/constants.py --work runs/grid --jobs 2 --docs      # an hour and a half on two cores of 2026

Trains JCAS again, seed 0, with one constant half or twice as large, on the very data of the finished cells of
``benchmarks/grid.py`` below ``--work``, beside whose scores its own stand. Only those constants are tried on a set that
its runs use: looks on ellipses of cardiac MRI and on nodules, colours on blood cells. Resumable.

These constants were set with true masks in sight (docs/DEVELOPMENT.md). Were they tuned to these sets, other values
would lose what JCAS gains. ``--rehearse`` asks the same where no true label is read: on labels that are made of JCAS's
own predictions (`rehearsal`; an hour on two cores). It shows whether noisy labels, their kind being known, would prefer
other values.
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
from itertools import product
from pathlib import Path
from typing import Any

from documents import ROOT, read_section, write_section
from grid_documents import kept_rows
from parts import finished
from rehearsal import config_for, rehearsal
from scipy.stats import spearmanr

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
    Constant("jcas.core.appearance:repaired.belief", "belief in the model (1: labels say nothing)", (ELLIPSE, NODULES)),
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
ABLATIONS = {ELLIPSE: ("jcas_no_screening", "jcas_no_refinement", "jcas_no_outline_bias")}
"""Parts of the method that a rehearsal is asked about, too: JCAS without each of them."""

FACTORS = (0.5, 2.0)
SEEDS = 3  # that a table looks for
CELLS_EPOCHS = 14  # of a rehearsal of blood cells, for as many steps as the labels themselves are trained
AS_IT_IS, BASELINE = "as it is", "baseline"
KEPT = ROOT / "docs" / "results" / "constants.json"


def name_of(constant: Constant, factor: float) -> str:
    return f"{constant.name.replace('.', '-')}__x{factor:g}"


def _suffix(seed: int) -> str:
    return f"__s{seed}" if seed else ""


@dataclass(frozen=True)
class Stage:
    """A set of labels that constants are tried on: with true labels of test images, or rehearsed."""

    part: str
    noise: str
    rehearsed: bool

    @property
    def title(self) -> str:
        """Of its column."""
        return f"{self.part}, {self.noise.partition(':')[0]}: {'rehearsal' if self.rehearsed else 'test'}"

    def folders(self, work: Path, seed: int = 0) -> dict[str, Path]:
        """Where each run lies: JCAS as it is, the baseline, and each constant times each factor."""
        own = work / "constants" / f"{self.part}{'_rehearsal' if self.rehearsed else ''}{_suffix(seed)}"
        runs = [name_of(constant, factor) for constant in self.constants() for factor in FACTORS]
        found = {name: own / name for name in runs}
        if self.rehearsed:
            others = {name: own / name for name in (BASELINE, *self.ablations())}
            return {AS_IT_IS: own / "jcas", **others, **found}
        cell = self.cell(work, seed)
        return {AS_IT_IS: cell, **found} if cell else {}

    def constants(self) -> list[Constant]:
        """Those that runs on these labels use."""
        return [constant for constant in CONSTANTS if (self.part, self.noise) in constant.sets]

    def ablations(self) -> tuple[str, ...]:
        """JCAS without a part that runs on these labels use."""
        return ABLATIONS.get((self.part, self.noise), ())

    def cell(self, work: Path, seed: int = 0) -> Path | None:
        """The finished cell of JCAS."""
        return finished(work, self.part, self.noise).get("jcas", {}).get(seed)

    def jobs(self, work: Path, seed: int = 0) -> Iterator[tuple[dict[str, Any], Path, Constant | None, float]]:
        """What there is to train: config, folder, constant, factor.

        A rehearsal has the labels that the cell of seed 0 has written, whatever the seed of its own trainings.
        """
        cell = self.cell(work, 0 if self.rehearsed else seed)
        if cell is None:
            return
        folders = self.folders(work, seed)
        changes: dict[str, Any] = {"seed": seed}
        if self.rehearsed:
            changes |= {"data": str(rehearsal(cell, work / "rehearsal" / self.part))}
            if (self.part, self.noise) == CELLS:  # three times as many images
                changes |= {"epochs": CELLS_EPOCHS, "options": {}}
            yield config_for(cell, **changes), folders[AS_IT_IS], None, 1.0
            for method in (BASELINE, *self.ablations()):
                yield config_for(cell, **changes | {"method": method, "options": {}}), folders[method], None, 1.0
        for constant in self.constants():
            for factor in FACTORS:
                yield config_for(cell, **changes), folders[name_of(constant, factor)], constant, factor


STAGES = (
    *(Stage(part, noise, rehearsed=True) for part, noise in (ELLIPSE, CELLS)),
    *(Stage(part, noise, rehearsed=False) for part, noise in (ELLIPSE, CELLS, NODULES)),
)


def train(values: dict[str, Any], out: Path, constant: Constant | None, factor: float) -> bool:
    """A run with another value of a constant; in a process of its own."""
    torch_threads(1)
    if constant is not None:
        constant.change(factor)
    return run_cell(values, out)


def measured(work: Path, stages: list[Stage]) -> dict[str, Any]:
    """Scores and commits of what is finished, by stage and run; what docs/results holds where it is not."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    for stage, seed in product(stages, range(SEEDS)):
        for name, folder in stage.folders(work, seed).items():
            path = folder / "results.json"
            if path.is_file():
                results = json.loads(path.read_text(encoding="utf-8"))
                row = {"jac": results["jac"]["mean"], "commit": results["commit"]}
                kept.setdefault(stage.title, {})[name + _suffix(seed)] = row
        if not stage.rehearsed and stage.title in kept:
            for method in (BASELINE, *stage.ablations()):
                jac = kept_rows(stage.part, stage.noise).get(method, {}).get("by_seed", {}).get("0")
                kept[stage.title][method] = {"jac": jac, "commit": None}
    return kept


def table(kept: dict[str, Any]) -> str:
    """A line for each constant: its value, and for each stage the scores with half and with twice of it."""
    shown = [title for title in (stage.title for stage in STAGES) if title in kept]
    lines = ["| constant | is | " + " | ".join(shown) + " |", "|---|--:|" + "--:|" * len(shown)]

    def score(title: str, name: str) -> str:
        jac = kept[title].get(name, {}).get("jac")
        return "–" if jac is None else f"{jac:.1f}"

    for constant in CONSTANTS:
        scores = [[score(title, name_of(constant, factor)) for factor in FACTORS] for title in shown]
        cells = ["–" if set(both) == {"–"} else ", ".join(both) for both in scores]
        if set(cells) != {"–"}:
            lines.append(
                f"| {constant.meaning} (`{constant.name}`) | {constant.value():g} | " + " | ".join(cells) + " |"
            )
    without = [(name, f"`{name}`") for methods in ABLATIONS.values() for name in methods]
    for name, called in (*without, (AS_IT_IS, "JCAS as it is"), (BASELINE, "baseline")):
        scores_of_row = [score(title, name) for title in shown]
        if set(scores_of_row) != {"–"}:
            lines.append(f"| {called} | | " + " | ".join(scores_of_row) + " |")
    commits = sorted({str(row["commit"] or "–") for title in shown for row in kept[title].values() if row["commit"]})
    seeds_and_commits = f"seed 0, and below what was repeated; commits {', '.join(commits)}"
    lines += ["", f"Half of the constant, twice the constant; {seeds_and_commits}."]
    for title in shown:
        runs = [name_of(constant, factor) for constant, factor in product(CONSTANTS, FACTORS)]
        runs += [name for name, _ in without] + [BASELINE]
        seeds = [s for s in range(1, SEEDS) if any(name + _suffix(s) in kept[title] for name in runs)]
        again = [AS_IT_IS, *(name for name in runs if any(name + _suffix(s) in kept[title] for s in seeds))]
        told = [f"{name} " + ", ".join(score(title, name + _suffix(s)) for s in (0, *seeds)) for name in again]
        if seeds:
            lines.append(f"Repeated ({title}, seeds 0, {', '.join(map(str, seeds))}): {'; '.join(told)}.")
    for part, noise in SETS:
        pair = [kept.get(Stage(part, noise, rehearsed).title, {}) for rehearsed in (True, False)]
        runs = {name_of(constant, factor) for constant, factor in product(CONSTANTS, FACTORS)}
        changed = runs & pair[0].keys()  # JCAS as it is and the baseline would agree anyhow
        common = sorted(name for name in changed if pair[1].get(name, {}).get("jac") is not None)
        both = [[rows[name]["jac"] for name in common] for rows in pair]
        if len(common) > 2 and all(len(set(scores)) > 1 for scores in both):  # of equal scores there is no order
            agreement = spearmanr(*both).statistic
            lines.append(
                f"Rank correlation of rehearsal and test over the changed constants, {part}: {agreement:.2f}"
                f" ({len(common)} runs)."
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/grid"), help="where benchmarks/grid.py has trained")
    parser.add_argument("--parts", nargs="+", choices=[part for part, _ in SETS], default=[part for part, _ in SETS])
    parser.add_argument("--rehearse", action="store_true", help="on labels made of predictions, not on the test")
    names = [*(c.name for c in CONSTANTS), *(name for methods in ABLATIONS.values() for name in methods)]
    parser.add_argument("--only", nargs="+", choices=names, help="beside JCAS as it is and the baseline")
    parser.add_argument("--seed", type=int, choices=range(SEEDS), default=0, help="of the trainings")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--tables", action="store_true", help="train nothing")
    parser.add_argument("--docs", action="store_true", help="write into docs/DEVELOPMENT.md")
    options = parser.parse_args()
    if options.docs:
        read_section("docs/DEVELOPMENT.md", "constants")  # not after hours
    work = options.work.resolve()
    failed = []
    if not options.tables:
        stages = [s for s in STAGES if s.part in options.parts and s.rehearsed == options.rehearse]
        if not stages:
            parser.error("only ellipses (--parts acdc) and blood cells (--parts wbc) are rehearsed")
        jobs = [job for stage in stages for job in stage.jobs(work, options.seed)]
        if options.only:
            always = ("jcas", BASELINE)
            jobs = [job for job in jobs if (job[2].name if job[2] else job[1].name) in (*options.only, *always)]
        if not jobs:
            parser.error(f"{work} has no finished cell of jcas with that seed; train one by benchmarks/grid.py")
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
            runs = [(pool.submit(train, *job), job[1]) for job in jobs]
            for done, (run, folder) in enumerate(runs, 1):
                if not run.result():
                    failed.append(f"failed: {folder} (error.txt)")
                print(f"{done}/{len(runs)} {folder.parent.name}/{folder.name}", flush=True)
    kept = measured(work, list(STAGES))
    print(table(kept))
    if options.docs:
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        write_section("docs/DEVELOPMENT.md", "constants", table(kept))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
