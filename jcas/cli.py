"""The command line: `jcas synth | corrupt | train | evaluate | predict | report | review | benchmark | methods | demo`.

A mistake of the user is one line on stderr and exit code 2; Ctrl-C is exit code 130.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    name="jcas",
    help="Train medical image segmentation on masks nobody can trust.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console(stderr=True)

DataFolder = Annotated[Path, typer.Argument(help="Dataset folder: images/, masks/, optional clean/, split.csv ...")]
RunFolder = Annotated[Path, typer.Argument(help="Run folder of `jcas train`.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every random choice.")]
_INTERRUPTED = 130
UPPER_BOUND = "upper_bound"
NOISE_NAMES = "symmetric, asymmetric, pair_flip, matrix, ellipse, dilate_erode, markov, polygon, sfda"
SET_WANTS = "--set wants NAME=VALUE"
EXAMPLE = "\n\n[dim]Example:[/dim]\n\n"


def _example(*lines: str) -> str:
    return EXAMPLE + "\n\n".join(f"  [cyan]{line}[/cyan]" for line in lines)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from jcas.version import __version__

        print(__version__)
        raise typer.Exit


@app.command(epilog=_example("jcas synth data/source --count 200 --size 256 320 --seed 1").strip())
def synth(
    out: Annotated[Path, typer.Argument(help="New dataset folder.")],
    count: Annotated[int, typer.Option(min=3, help="Number of images.")] = 120,
    size: Annotated[tuple[int, int], typer.Option(help="Rows and columns.")] = (256, 320),
    domain: Annotated[str, typer.Option(help="Look of the scenes: source or target.")] = "source",
    seed: Seed = 0,
) -> None:
    """Draw synthetic endoscopic instruments with exact part labels."""
    from jcas.data.synthetic import write_dataset

    write_dataset(out, count=count, size=size, seed=seed, domain=domain)
    _say(f"{count} images and masks in {out}")


@app.command(
    epilog=_example(
        "jcas corrupt data/source --noise ellipse --out data/ellipse",
        "jcas corrupt data/source --noise symmetric:rate=0.5 --out data/sym50",
        "jcas corrupt data/source --noise matrix --matrix T.json --out data/mine",
        "jcas corrupt data/target --noise sfda --source runs/source --out data/sfda",
        "jcas corrupt endovis18 --noise ellipse --validation seq_04 --out data/endovis_ellipse",
    ).strip()
)
def corrupt(
    data: DataFolder,
    noise: Annotated[str, typer.Option(help=f"NAME or NAME:key=value, one of {NOISE_NAMES}.")],
    out: Annotated[Path, typer.Option(help="New dataset folder; the originals go to its clean/.")],
    parameters: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of the noise; repeat.")] = None,
    matrix: Annotated[Path | None, typer.Option(help="JSON file with T, for --noise matrix.")] = None,
    source: Annotated[Path | None, typer.Option(help="Run folder whose predictions are the labels (sfda).")] = None,
    share: Annotated[float, typer.Option(min=0, max=1, help="Share of the images that get noise.")] = 1.0,
    validation: Annotated[
        list[str] | None, typer.Option(help="Group (patient, video) to move from train to val; repeat.")
    ] = None,
    seed: Seed = 0,
    workers: Annotated[int, typer.Option(min=1, help="Threads.")] = 2,
) -> None:
    """Lay label noise over a dataset; writes what was done and a contact sheet to look at."""
    from jcas.benchmark.noisy_sets import parse_noise, predicted_labels
    from jcas.config import named_values
    from jcas.corrupt import corrupt as lay_noise
    from jcas.data import open_dataset
    from jcas.noise import Noise

    if out.resolve().is_relative_to(data.resolve()):
        raise ValueError(f"--out {out} lies inside the dataset {data}")
    values = named_values(parameters or [], wanted=SET_WANTS)
    if ":" in noise:  # as `jcas benchmark` takes it
        spec = parse_noise(noise)
        twice = [f"--set {name}" for name in values if name in spec.parameters]
        twice += ["--source"] * bool(spec.source and source) + ["--matrix"] * bool(
            matrix and "matrix" in spec.parameters
        )
        if twice:
            raise ValueError(f"--noise {noise} says it already, drop {twice[0]}")
        noise, source, values = spec.name, spec.source or source, {**spec.parameters, **values}
    chosen: Noise | str = noise
    if matrix is not None:
        if noise != "matrix":
            raise ValueError(f"--matrix belongs to --noise matrix, got --noise {noise}")
        values["matrix"] = _read_json(matrix)
    if noise == "matrix" and "matrix" not in values:
        raise ValueError("--noise matrix needs --matrix FILE, a JSON list of rows that each sum to 1")
    if noise == "sfda":
        if source is None:
            raise ValueError("--noise sfda needs --source RUN, the model whose predictions become the labels")
        if values:
            raise ValueError(f"--noise sfda has no parameters, drop --set {next(iter(values))}")
        chosen = predicted_labels(source, open_dataset(data))
        workers = 1
    elif source is not None:
        raise ValueError(f"--source belongs to --noise sfda, got --noise {noise}")
    folder = lay_noise(
        data,
        noise=chosen,
        out=out,
        parameters=values or None,
        seed=seed,
        share=share,
        validation=validation or (),
        workers=workers,
    )
    about = json.loads((folder / "noise.json").read_text(encoding="utf-8"))
    pairs, pixels = about["affinity_noise_rate"], about["class_noise_rate"]
    cleaner = "cleaner than" if pairs < pixels else "noisier than" if pairs > pixels else "as noisy as"
    _say(
        f"{about['corrupted_images']} masks corrupted: {pixels:.1%} of the pixels wrong, {pairs:.1%} of the pixel "
        f"pairs (pairs are {cleaner} pixels here)\nsee {folder / 'contact_sheet.png'}"
    )


@app.command(
    epilog=_example(
        "jcas train data/ellipse --method jcas --encoder lite0 --epochs 50 --out runs/jcas",
        "jcas train data/ellipse --method baseline --labels clean --out runs/upper",
        "jcas train data/ellipse --method jcas --set intra=false --out runs/no_intra",
        "jcas train data/acdc_sym50 --config configs/acdc.yaml --out runs/acdc",
        "jcas train --resume --out runs/jcas",
    ).strip()
)
def train(
    data: Annotated[Path | None, typer.Argument(help="Dataset folder.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/run"),
    config: Annotated[Path | None, typer.Option(help="YAML config; flags override it.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    method: Annotated[str | None, typer.Option(help="See `jcas methods`.", show_default="jcas")] = None,
    options: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of the method; repeat.")] = None,
    labels: Annotated[str | None, typer.Option(help="noisy, or clean: the upper bound.", show_default="noisy")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="tiny, unet, lite0, resnet18..101, timm:NAME.", show_default="tiny")
    ] = None,
    pretrained: Annotated[
        str | None, typer.Option(help="ImageNet weights: yes, no, or a file.", show_default="yes if pip has them")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the images.", show_default="50")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per step and process.", show_default="8")
    ] = None,
    size: Annotated[tuple[int, int] | None, typer.Option(help="Resize to rows, columns.")] = None,
    crop: Annotated[tuple[int, int] | None, typer.Option(help="Train on windows of rows, columns.")] = None,
    augmentation: Annotated[str | None, typer.Option(help="none, flip or strong.", show_default="flip")] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw or sgd.", show_default="adamw")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the heads (and of an encoder from scratch).", show_default="0.002")
    ] = None,
    encoder_learning_rate: Annotated[
        float | None, typer.Option(help="Of the encoder.", show_default="a tenth if pretrained")
    ] = None,
    matrix_learning_rate: Annotated[
        float | None, typer.Option(help="Of the transition matrices.", show_default="0.01")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Not on matrices.", show_default="0.0001")] = None,
    selection: Annotated[
        str | None, typer.Option(help="Epoch to keep: noisy_validation or last.", show_default="noisy_validation")
    ] = None,
    watch: Annotated[
        str | None, typer.Option(help="Split of the Jac curve: none, val, test.", show_default="val")
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share to hold out where there are no val images.", show_default="0.125")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of every random choice.", show_default="0")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Loader processes.", show_default="0")] = None,
    cache: Annotated[
        float | None, typer.Option(help="Share of the images to keep in memory.", show_default="1.0")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.", show_default="all")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or gpu.", show_default="auto")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Processes per node.", show_default="1")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Machines.", show_default="1")] = None,
    precision: Annotated[
        str | None, typer.Option(help="32-true, 16-mixed or bf16-mixed.", show_default="32-true")
    ] = None,
    deterministic: Annotated[
        bool | None,
        typer.Option(
            "--deterministic/--no-deterministic", help="Repeatable kernels on CUDA; slower.", show_default="yes"
        ),
    ] = None,
    compile_model: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile the model.", show_default="no")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Train a model on a dataset whose masks may be wrong, and evaluate it."""
    import torch

    from jcas import engine
    from jcas.config import make_config, named_values, read_values

    if resume and (config or options):
        raise ValueError(f"--resume continues the run as it was started, drop {'--config' if config else '--set'}")
    values: dict[str, Any] = read_values(config) if config else {}
    if resume:
        values = read_values(out / "config.yaml") if (out / "config.yaml").is_file() else _nothing_to_resume(out)
    flags = {
        "data": None if data is None else str(data),
        "method": method,
        "labels": labels,
        "encoder": encoder,
        "pretrained": {"yes": True, "no": False}.get(pretrained or "", pretrained),
        "epochs": epochs,
        "batch_size": batch_size,
        "size": size,
        "crop": crop,
        "augmentation": augmentation,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "encoder_learning_rate": encoder_learning_rate,
        "matrix_learning_rate": matrix_learning_rate,
        "weight_decay": weight_decay,
        "selection": selection,
        "watch": watch,
        "validation": validation,
        "seed": seed,
        "workers": workers,
        "cache": cache,
        "threads": threads,
        "device": device,
        "devices": devices,
        "nodes": nodes,
        "precision": precision,
        "deterministic": deterministic,
        "compile": compile_model,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    if resume and (changed := [key for key in given if key not in ("workers", "cache", "threads", "device")]):
        raise ValueError(f"--resume continues the run as it was started, drop --{changed[0].replace('_', '-')}")
    values |= given
    if options:
        stored = values.get("options", {})
        if not isinstance(stored, dict):
            raise ValueError(f"{config}: options must be a mapping, got {stored!r}")
        values["options"] = {**stored, **named_values(options, wanted=SET_WANTS)}
    if "data" not in values:
        raise ValueError("which dataset? give its folder, or `data:` in --config")
    chosen = make_config(values, source=str(config or "train"))
    try:
        results = engine.train(chosen, out, resume=resume, progress=progress)
    except torch.OutOfMemoryError as error:
        advice = "the GPU has too little memory for this training; choose a smaller --batch-size, --size or --crop"
        raise engine.TrainingError(advice) from error
    if results is not None:
        _warn_of_noisy_truth(results)
        _print_results([results])
        _say(f"run folder: {out}    report: jcas report {shlex.quote(str(out))}")


@app.command(epilog=_example("jcas methods", "jcas methods volmin").strip())
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this one: formula, options, what differs from its paper.")
    ] = None,
) -> None:
    """List the methods: name, paper, what each needs beyond a backbone. With a NAME: all about that one."""
    from jcas.methods import METHODS, VARIANTS

    if name is not None:
        _print_card(name)
        return
    named = Table("name", "paper", "needs", title="methods (a run: jcas train DATA --method NAME)")
    for name, cls in METHODS.items():
        named.add_row(name, cls.paper, cls.needs)
    named.add_row(UPPER_BOUND, "baseline on true labels", "clean/; in jcas benchmark --methods only")
    named.columns[0].no_wrap = True
    variants = Table("name", "is", "with", title="variants: rows and ablations of the paper, and of our own parts")
    for name, (base, options) in VARIANTS.items():
        variants.add_row(name, base, _settings(options))
    variants.columns[0].no_wrap = variants.columns[1].no_wrap = True
    Console().print(named, variants)


@app.command(epilog=_example("jcas evaluate runs/jcas --data data/hospital_b --surface").strip())
def evaluate(
    run: RunFolder,
    data: Annotated[Path | None, typer.Option(help="Another dataset; default: the run's own.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    surface: Annotated[
        bool, typer.Option("--surface", help="Also HD95, ASSD and NSD; mm for NIfTI, else pixels.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Distance that NSD counts as right, in the unit of the distances.")
    ] = 1.0,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the tables as JSON.")] = None,
) -> None:
    """Score a trained model against the true masks (clean/ where it exists)."""
    from jcas.data import open_dataset
    from jcas.inference import distance_unit, score
    from jcas.run import device_named, read_run, write_json

    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file for the JSON")
    trained = read_run(run)
    trained.method.to(device_named(device))
    dataset = open_dataset(data or Path(trained.config.data))
    if data is None:  # with the validation images of the training
        dataset = dataset.with_validation(trained.config.validation)
    trained.expect_same_kind(dataset)
    if not dataset.split(split):
        raise ValueError(f"{dataset.root}: no {split} images")
    scores, _ = score(
        trained.method, dataset, split, trained.config, surface=surface, tolerance=tolerance, progress=True
    )
    tables: dict[str, Any] = {
        "method": trained.config.method,
        "dataset": dataset.name,
        "split": split,
        **scores.compute(),
    }
    tables["truth"] = "clean" if dataset.truth_is_clean(split) else "masks"
    if surface:
        tables |= {"distance_unit": distance_unit(dataset, split), "nsd_tolerance": tolerance}
    _warn_of_noisy_truth(tables)
    _print_results([tables])
    if out is not None:
        write_json(out, {**tables, "per_image": scores.per_image()})


@app.command(
    epilog=_example(
        "jcas predict runs/jcas data/new/images --out masks --overlays",
        "jcas predict runs/jcas volume.nii.gz --out masks",
    ).strip()
)
def predict(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="Folder, files, or NIfTI volumes.")],
    out: Annotated[Path, typer.Option(help="Folder for the masks.")],
    overlays: Annotated[bool, typer.Option("--overlays", help="Also tinted images in OUT/overlays.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also float16 (C, H, W) arrays in OUT/probabilities.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
) -> None:
    """Write masks for images of any size."""
    from jcas.predict import predict_files
    from jcas.run import device_named, read_run

    trained = read_run(run)
    trained.method.to(device_named(device))
    count = predict_files(trained, images, out, overlays=overlays, probabilities=probabilities)
    _say(f"{count} {'mask' if count == 1 else 'masks'} in {out}")


@app.command(
    epilog=_example(
        "jcas report runs/baseline runs/jcas --out report.html", "jcas report bench", "jcas report audits/first"
    ).strip()
)
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
    _say(f"report: {page}")


@app.command(
    epilog=_example(
        "jcas audit runs/jcas --out audits/first",
        "jcas audit runs/jcas --folds 4 --out audits/blind --wrongness",
        "jcas audit runs/jcas --out audits/first --dataset-out data/repaired",
        "jcas train data/repaired --out runs/repaired",
    ).strip()
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
        _say(f"dataset: {dataset_out}")
    folder = shlex.quote(str(out))
    _say(f"audit folder: {out}    look: jcas report {folder}    repair: jcas review {folder}")


@app.command(
    epilog=_example(
        "jcas review audits/first",
        "jcas review audits/first --export data/corrected",
        "jcas review audits/first --export corrected_coco --format coco",
    ).strip()
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
        raise ValueError(f"the review page needs {error.name}: pip install 'jcas[review]'") from None
    # Not through rich: a wrapped address cannot be clicked.
    serve(audit, host=host, port=port, browser=browser, data=data, announce=lambda text: print(text, flush=True))


@app.command(
    epilog=_example(
        "jcas benchmark data/acdc --noise ellipse --noise symmetric:rate=0.5 --methods upper_bound,baseline,jcas "
        "--seeds 3 --config configs/acdc.yaml --jobs 2 --out bench",
        "jcas benchmark data/target --noise sfda:runs/source --out bench_sfda",
        "jcas benchmark --out bench                      continue, or repeat what failed",
        "jcas benchmark --out bench --tables             tables and figures only",
        "jcas benchmark --out bench --runner ray --address auto",
    ).strip()
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
        _say(f"written: {', '.join(path.name for path in write_tables(read_grid(out)))}")
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
    _say(f"table: {out / 'table.md'}    report: jcas report {out}")
    if failed:
        for cell in failed if not progress else ():  # progress has told each as it came
            _complain(f"failed: {cell.name}: {(grid.error(cell) or 'no error recorded').splitlines()[0]}")
        again = f"jcas benchmark --out {shlex.quote(str(out))}"
        _complain(f"{len(failed)} of {len(grid.cells)} cells failed; {again} repeats them")
        raise typer.Exit(1)


@app.command(epilog=_example("jcas demo --out demo").strip())
def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, runs and report; must not exist.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Show the whole road in minutes: synthetic instruments, ellipse noise, baseline beside JCAS, a report."""
    from jcas.demo import run_demo

    results, page = run_demo(out, seed=seed)
    _print_results(results)
    _say(f"report: {page}")


def _say(text: str) -> None:
    """A line for people on stderr, as it is: rich would read brackets in a path as markup and wrap it."""
    print(text, file=sys.stderr)


def _print_card(name: str) -> None:
    """What is written of a method in its class, and its options."""
    from jcas.methods import VARIANTS, method_class, method_options, option_defaults
    from jcas.methods.card import card_paragraphs

    out, method = Console(highlight=False), "baseline" if name == UPPER_BOUND else name
    cls = method_class(method)
    if name == UPPER_BOUND:
        out.print(f"{name}: baseline trained on the true labels of clean/, a row of jcas benchmark. The same as a run:")
        out.print("jcas train DATA --method baseline --labels clean\n")
    elif name in VARIANTS:
        out.print(f"{name}: {VARIANTS[name][0]} with {_settings(VARIANTS[name][1])}\n", markup=False)
    for paragraph in card_paragraphs(cls):
        out.print(paragraph + "\n", markup=False)
    defaults, by_length, table = option_defaults(method), cls.schedule(50), Table("option", "default")
    for option, value in {**defaults, **method_options(method, {}, epochs=50)}.items():
        shown = "not set, see above" if value is None else json.dumps(value)
        table.add_row(option, f"{shown} in a run of 50 epochs" if option in by_length else shown)
    out.print("--set OPTION=VALUE:" if defaults else "It has no options.")
    if defaults:
        out.print(table)


def _settings(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={json.dumps(value)}" for key, value in options.items())


def _warn_of_noisy_truth(results: dict[str, Any]) -> None:
    if results.get("truth") == "masks":
        _say("no clean/ masks: scored against masks/, which may be wrong themselves")


def _print_results(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"{rows[0]['dataset']}, {rows[0].get('split', 'test')} split, percent")
    table.add_column("method")
    names = [name for name in rows[0]["jac"] if name != "mean"]
    for name in [*names, "mean"]:
        table.add_column(f"{name}\nDice", justify="right")
        table.add_column(f"{name}\nJac", justify="right")
    for row in rows:
        cells = [_cell(row[metric][name]) for name in [*names, "mean"] for metric in ("dice", "jac")]
        table.add_row(row["method"] + (" (clean labels)" if row.get("upper_bound") else ""), *cells)
    Console().print(table)
    surface = [metric for metric in ("hd95", "assd", "nsd", "missed") if metric in rows[0]]
    if not surface:
        return
    unit = rows[0]["distance_unit"]
    headings = {
        "hd95": f"HD95\n{unit}",
        "assd": f"ASSD\n{unit}",
        "nsd": f"NSD, %\nwithin {rows[0]['nsd_tolerance']:g} {unit}",
        "missed": "missed\n% of images",
    }
    table = Table("method", "class", title="surfaces, within the image or slice")
    for metric in surface:
        table.add_column(headings[metric], justify="right")
    for row in rows:
        for name in [*names, "mean"]:
            table.add_row(row["method"], name, *(_cell(row[metric][name]) for metric in surface))
    Console().print(table)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no file at {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from None


def _nothing_to_resume(out: Path) -> dict[str, Any]:
    raise ValueError(f"{out}: nothing to resume (no config.yaml)")


def main() -> None:
    """Entry point of the ``jcas`` command."""
    try:
        code = app(standalone_mode=False)
        if code == _INTERRUPTED:  # typer's word for a KeyboardInterrupt
            _complain("stopped; train continues from its last epoch with --resume, a benchmark with the same command")
    except (ValueError, OSError, RuntimeError) as error:
        if not _is_users(error) or os.environ.get("JCAS_DEBUG"):  # JCAS_DEBUG=1 shows where an error came from
            raise
        _complain(_one_line(error))
        code = 2
    except Exception as error:
        if not hasattr(error, "format_message"):  # not a complaint of the argument parser
            raise
        if message := _usage(error):  # empty after `jcas` alone, which has printed its help
            _complain(message)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _is_users(error: Exception) -> bool:
    """Whether an error tells the user something to act on: bad input, a file system, a run that cannot go on."""
    if not isinstance(error, RuntimeError):
        return True
    from jcas.engine import TrainingError  # takes seconds: a typo must not wait for it

    return isinstance(error, TrainingError)


def _one_line(error: Exception) -> str:
    text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
    return " ".join(text.split())


def _usage(error: Exception) -> str:
    """The parser's complaint, with the nearest flag of the command if one was unknown."""
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    unknown = getattr(error, "option_name", None)
    if (
        unknown
        and message.startswith("No such option")
        and not any(hint in message.lower() for hint in ("did you mean", "possible options"))
    ):
        command = typer.main.get_command(app)
        called = getattr(command, "commands", {}).get(sys.argv[1] if len(sys.argv) > 1 else "")
        known = [flag for parameter in getattr(called, "params", []) for flag in parameter.opts]
        near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.0)
        message += f" Did you mean {near[0]}?" if near else ""
    return message


def _complain(message: str) -> None:
    print(f"jcas: {message}", file=sys.stderr)
