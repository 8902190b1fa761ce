"""Every method on real data: the comparison of docs/RESULTS.md, on three datasets.

    python benchmarks/grid.py ../shared/data --work runs/grid --jobs 2 --docs      # hours; see --parts and --methods

Parts: ``acdc`` (cardiac MRI with ellipse, symmetric 0.5 and asymmetric 0.5 noise), ``wbc`` (blood cells: labels of
laboratory 2 predicted by a model of laboratory 1), ``lidc`` (lung nodules: one random reader's outlines, tested against
the majority of the others). One seed for every method, three for the main four and those of `parts.MORE_SEEDS`. From
2.5 minutes (baseline) to 6 (trinet; jcas_released_64: 13) for a cell of acdc on one core of 2026, 2 to 3 for the
others. `parts.LOOKS` is a quick look at other data and noises, the pictures of `phantoms` among them, 1 to 2 minutes a
cell: baseline, jcas and the upper bound, one seed.

Resumable: finished cells are kept, interrupted ones continue. ``--docs`` writes tables and pictures of what is finished
into docs/; with ``--tables`` nothing is trained.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from command import jcas
from documents import ROOT
from grid_documents import write_documents, write_tables
from parts import (
    ABLATIONS_OF_A_PART,
    ABLATIONS_OF_FLIPS,
    ABLATIONS_OF_THE_IMAGE,
    CONFIGS,
    FLIPS,
    LOOK,
    LOOKS,
    MAIN,
    MORE_SEEDS,
    NOISES,
    PEERS,
    SEEDS_OF_MAIN,
)
from prepare import FOLDERS_OF, prepare


def source_model(work: Path) -> Path:
    """A plain model of laboratory 1 with expert labels: the source of the SFDA labels."""
    run = work / "wbc1_source"
    if not (run / "results.json").is_file():
        shutil.rmtree(run, ignore_errors=True)
        data = str(work / "data" / "wbc1")
        jcas("train", data, "--config", str(CONFIGS["wbc"]), "--method", "baseline", "--out", str(run))
    return run


def run_part(
    part: str,
    shared: Path,
    work: Path,
    methods: tuple[str, ...],
    seeds: int,
    jobs: int,
    *,
    only: tuple[str, ...] | None = None,
) -> None:
    """Train methods on the noises of a part, all or ``only`` some."""
    data = work / "data" / (FOLDERS_OF.get(part) or (part,))[-1]
    if not data.is_dir():
        data = shared / part
    look = LOOKS.get(part)
    noises = look.noises if look else (f"sfda:{source_model(work)}",) if part == "wbc" else NOISES[part]
    noises = tuple(noise for noise in noises if only is None or noise in only)
    if not noises:
        return
    flags = [flag for noise in noises for flag in ("--noise", noise)]
    if look:
        flags += ["--epochs", str(look.epochs), "--selection", "last"]
        flags += ["--size", *map(str, look.size)] if look.size else []
    config = ROOT / "configs" / f"{look.config}.yaml" if look else CONFIGS[part]
    jcas(
        *("benchmark", str(data), *flags, "--methods", ",".join(methods), "--seeds", str(seeds)),
        *("--config", str(config), "--jobs", str(jobs), "--out", str(work / part)),
    )


def train_part(part: str, work: Path, options: argparse.Namespace) -> None:
    """What is asked for of a part: its tables alone, some methods, or all."""
    if options.tables:
        if (work / part / "grid.json").is_file():
            jcas("benchmark", "--out", str(work / part), "--tables")
    elif options.methods:
        run_part(part, options.shared, work, tuple(options.methods), options.seeds, options.jobs)
    elif part in LOOKS:
        run_part(part, options.shared, work, LOOK, 1, options.jobs)
    else:
        run_part(part, options.shared, work, MAIN, SEEDS_OF_MAIN, options.jobs)
        others = (*PEERS, *ABLATIONS_OF_THE_IMAGE, *ABLATIONS_OF_A_PART.get(part, ()))
        run_part(part, options.shared, work, others, 1, options.jobs)
        run_part(part, options.shared, work, ABLATIONS_OF_FLIPS, 1, options.jobs, only=FLIPS)
        for method, (seeds, noises) in MORE_SEEDS.get(part, {}).items():
            run_part(part, options.shared, work, (method,), seeds, options.jobs, only=noises)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder with acdc/, wbc/ and lidc4/")
    parser.add_argument("--work", type=Path, default=Path("runs/grid"))
    parser.add_argument("--jobs", type=int, default=2)
    parts = (*CONFIGS, *LOOKS)
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--methods", nargs="+", help="only these, with --seeds")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", action="store_true", help="train nothing")
    parser.add_argument("--docs", action="store_true", help="write into docs/")
    options = parser.parse_args()
    work = options.work.resolve()
    prepare(options.shared, work / "data", options.parts)
    failed = []
    for part in options.parts:
        try:
            train_part(part, work, options)
        except SystemExit as failure:  # of some cells; the others stand
            failed.append(str(failure))
        if options.docs:
            write_documents(part, work)
    if options.docs:
        write_tables(work)
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
