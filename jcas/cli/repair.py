"""Commands that find wrong masks and put them right: `audit` and `review`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from jcas.cli.options import RunFolder, examples
from jcas.cli.output import say

console = Console(stderr=True)


@examples(
    "jcas audit runs/jcas --out audits/first",
    "jcas audit runs/jcas --folds 4 --out audits/blind --wrongness",
    "jcas audit runs/jcas --out audits/first --dataset-out data/repaired",
    "jcas train data/repaired --out runs/repaired",
)
def audit(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Audit folder; an unfinished audit in it continues.")],
    data: Annotated[Path | None, typer.Option(help="Another dataset; default: the run's own.")] = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Train that many models, each blind to the images it judges.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Least probability of a label that replaces another.")] = 0.9,
    split: Annotated[
        list[str] | None, typer.Option(help="train, val or test; repeat.", show_default="train, val")
    ] = None,
    wrongness: Annotated[bool, typer.Option("--wrongness", help="Also maps of the wrong-label probability.")] = False,
    matrix: Annotated[str, typer.Option(help="Noise to weigh labels with: contested or learned.")] = "contested",
    dataset_out: Annotated[Path | None, typer.Option(help="Also write a dataset for `jcas train`.")] = None,
    use: Annotated[str, typer.Option(help="In --dataset-out: repaired masks, or given ones weighted.")] = "repaired",
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Find the wrong masks of a dataset, rank them and suggest repairs."""
    from jcas import audit as auditing

    if dataset_out is not None:
        if dataset_out.resolve() == out.resolve():
            raise ValueError(f"--dataset-out {dataset_out} is the folder of the audit")
        auditing.check_dataset_request(dataset_out, use)
    elif use != "repaired":
        raise ValueError(f"--use {use} belongs to --dataset-out")
    finished = (out / "audit.json").is_file() and dataset_out is not None
    if finished:  # only the dataset is asked for
        about = auditing.read_audit(out)
    else:
        splits = tuple(split or ("train", "val"))
        about = auditing.audit(
            run,
            out,
            data=data,
            folds=folds,
            confidence=confidence,
            splits=splits,
            wrongness=wrongness,
            matrix=matrix,  # type: ignore[arg-type]
            progress=progress,
        )
    pixels, pairs = about["class_noise_rate"], about["affinity_noise_rate"]
    console.print(
        f"{about['images']} masks judged: {pixels['value']:.2%} of the pixels wrong "
        f"({pixels['low']:.2%} to {pixels['high']:.2%}), {pairs['value']:.2%} of the pixel pairs"
    )
    if not about["out_of_sample"]:
        console.print("[yellow]judged by a model that was trained on these labels; --folds 4 is fairer[/yellow]")
    console.print("  ".join(f"{kind} {count}" for kind, count in about["kinds"].items()) or "no issues")
    if dataset_out is not None:
        auditing.write_dataset(out, dataset_out, use=use)  # type: ignore[arg-type]
        say(f"dataset: {dataset_out}")
    folder = shlex.quote(str(out))
    say(f"audit folder: {out}    look: jcas report {folder}    repair: jcas review {folder}")


@examples(
    "jcas review audits/first",
    "jcas review audits/first --export data/corrected",
    "jcas review audits/first --export corrected_coco --format coco",
)
def review(
    audit: Annotated[Path, typer.Argument(help="Folder of `jcas audit`.")],
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: 8765, or a free one.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; the default is this machine only.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    export: Annotated[Path | None, typer.Option(help="Write the corrected dataset here instead.")] = None,
    format: Annotated[str, typer.Option(help="Of --export: folder, coco or nifti.")] = "folder",
    data: Annotated[Path | None, typer.Option(help="The dataset, if it has moved.")] = None,
) -> None:
    """Look at suspected masks in the browser, accept, reject or paint over the repairs; export the result."""
    if export is not None:
        from jcas.review.export import export_review

        done = export_review(audit, export, format=format, data=data)  # type: ignore[arg-type]
        told = (
            f"{done.images} images in {done.folder}: {done.changed_pixels} pixels of {done.changed_images} masks "
            f"changed, {done.left_out} untrusted left out, {done.unreviewed} not reviewed (kept as given)"
        )
        console.print(told, markup=False, highlight=False, soft_wrap=True)  # a path may hold brackets
        return
    try:
        from jcas.review.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette"):
            raise
        raise ValueError(f"the review page needs {error.name}: pip install -e '.[review]'") from None
    # Not through rich: a wrapped address cannot be clicked.
    serve(audit, host=host, port=port, browser=browser, data=data, announce=lambda text: print(text, flush=True))
