"""Commands that put runs side by side: `benchmark` and `report`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from jcas.cli.options import NOISE_NAMES, examples
from jcas.cli.output import complain, say


@examples(
    "jcas benchmark data/acdc --noise ellipse --noise symmetric:rate=0.5 --methods upper_bound,baseline,jcas "
    "--seeds 3 --config configs/acdc.yaml --jobs 2 --out bench",
    "jcas benchmark data/target --noise sfda:runs/source --out bench_sfda",
    "jcas benchmark --out bench                      continue, or repeat what failed",
    "jcas benchmark --out bench --tables             tables and figures only",
    "jcas benchmark --out bench --runner ray --address auto",
)
def benchmark(
    out: Annotated[Path, typer.Option(help="Folder of the benchmark; an existing one is continued or extended.")],
    data: Annotated[list[Path] | None, typer.Argument(help="Dataset folders; none: continue what is in --out.")] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(help=f"NAME or NAME:key=value, one of {NOISE_NAMES}:RUN, or none: labels as they are; repeat."),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="Names, with commas or repeated; upper_bound is one.", show_default="all")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Training seeds per cell.")] = 1,
    config: Annotated[Path | None, typer.Option(help="YAML with the shared training settings; flags override.")] = None,
    encoder: Annotated[str | None, typer.Option(help="tiny, unet, lite0, resnet18..101, timm:NAME")] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    size: Annotated[tuple[int, int] | None, typer.Option(help="Resize to rows, columns.")] = None,
    augmentation: Annotated[str | None, typer.Option(help="none, flip or strong.")] = None,
    selection: Annotated[str | None, typer.Option(help="noisy_validation or last.")] = None,
    watch: Annotated[
        str | None, typer.Option(help="Split of the curves: none, val, test.", show_default="test")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of a cell.", show_default="1")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or gpu.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = 1,
    runner: Annotated[str, typer.Option(help="local (a process per cell), ray, or inline (for a debugger).")] = "local",
    address: Annotated[str, typer.Option(help="Ray cluster; without it --runner ray starts one here.")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="Write tables and figures of what is finished.")] = False,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
) -> None:
    """Compare methods on one fair grid of datasets, noises and seeds: same data order, epochs, backbone, selection."""
    from jcas.benchmark import check_runner, exclusive, plan, read_grid, run_grid, write_tables
    from jcas.config import read_values

    check_runner(runner, address, jobs)
    names = [name.strip() for text in methods or [] for name in text.split(",") if name.strip()]
    if methods and not names:
        raise ValueError("--methods names no method; leave it out to train all of them")
    flags = {
        "encoder": encoder,
        "epochs": epochs,
        "batch_size": batch_size,
        "size": size,
        "augmentation": augmentation,
        "selection": selection,
        "watch": watch,
        "threads": threads,
        "device": device,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    asked = {"--noise": noise, "--methods": methods, "--config": config, "--seeds": seeds > 1}
    of_new_cells = [flag for flag, value in asked.items() if value] + [f"--{key.replace('_', '-')}" for key in given]
    if tables:
        ways = {"--jobs": jobs > 1, "--runner": runner != "local"}
        useless = [*map(str, data or []), *of_new_cells, *(flag for flag, value in ways.items() if value)]
        if useless:
            raise ValueError(f"--tables only draws what is in --out, drop {useless[0]}")
        say(f"written: {', '.join(path.name for path in write_tables(read_grid(out)))}")
        return
    if not data:
        if of_new_cells:
            raise ValueError("which datasets? give their folders, or only --out to continue a benchmark")
        read_grid(out)  # a folder without one is left as it is, without a lock
    with exclusive(out):
        if data:
            settings = {**(read_values(config) if config else {}), **given}
            grid = plan(out, data, noises=noise or [], methods=names, seeds=seeds, settings=settings, progress=progress)
        else:
            grid = read_grid(out)
        failed = run_grid(grid, runner=runner, jobs=jobs, address=address, progress=progress)
        write_tables(grid)
    say(f"table: {out / 'table.md'}    report: jcas report {out}")
    if failed:
        for cell in failed if not progress else ():  # progress has told each as it came
            complain(f"failed: {cell.name}: {(grid.error(cell) or 'no error recorded').splitlines()[0]}")
        again = f"jcas benchmark --out {shlex.quote(str(out))}"
        complain(f"{len(failed)} of {len(grid.cells)} cells failed; {again} repeats them")
        raise typer.Exit(1)


@examples("jcas report runs/baseline runs/jcas --out report.html", "jcas report bench", "jcas report audits/first")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, side by side; or one benchmark; or one audit.")],
    out: Annotated[Path | None, typer.Option(help="HTML file; default: report.html in the first folder.")] = None,
) -> None:
    """Put one or several runs, a benchmark, or an audit on one self-contained page."""
    from jcas.report import build_audit_report, build_benchmark_report, build_report, is_audit, is_benchmark

    target = out or runs[0] / "report.html"
    if len(runs) == 1 and is_audit(runs[0]):
        page = build_audit_report(runs[0], target)
    elif len(runs) == 1 and is_benchmark(runs[0]):
        page = build_benchmark_report(runs[0], target)
    else:
        page = build_report(runs, target)
    say(f"report: {page}")
