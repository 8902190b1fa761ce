"""The command that trains a model: `train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from jcas.cli.options import SET_WANTS, examples
from jcas.cli.output import print_results, say, warn_of_noisy_truth


@examples(
    "jcas train data/ellipse --method jcas --encoder lite0 --epochs 50 --out runs/jcas",
    "jcas train data/ellipse --method baseline --labels clean --out runs/upper",
    "jcas train data/ellipse --method jcas --set intra=false --out runs/no_intra",
    "jcas train data/acdc_sym50 --config configs/acdc.yaml --out runs/acdc",
    "jcas train --resume --out runs/jcas",
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
        warn_of_noisy_truth(results)
        print_results([results])
        say(f"run folder: {out}    report: jcas report {shlex.quote(str(out))}")


def _nothing_to_resume(out: Path) -> dict[str, Any]:
    raise ValueError(f"{out}: nothing to resume (no config.yaml)")
