"""Commands that make datasets: `synth` and `corrupt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from jcas.cli.options import NOISE_NAMES, SET_WANTS, DataFolder, Seed, examples
from jcas.cli.output import say


@examples("jcas synth data/source --count 200 --size 256 320 --seed 1")
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
    say(f"{count} images and masks in {out}")


@examples(
    "jcas corrupt data/source --noise ellipse --out data/ellipse",
    "jcas corrupt data/source --noise symmetric:rate=0.5 --out data/sym50",
    "jcas corrupt data/source --noise matrix --matrix T.json --out data/mine",
    "jcas corrupt data/target --noise sfda --source runs/source --out data/sfda",
    "jcas corrupt endovis18 --noise ellipse --validation seq_04 --out data/endovis_ellipse",
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
    say(
        f"{about['corrupted_images']} masks corrupted: {pixels:.1%} of the pixels wrong, {pairs:.1%} of the pixel "
        f"pairs (pairs are {cleaner} pixels here)\nsee {folder / 'contact_sheet.png'}"
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no file at {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
