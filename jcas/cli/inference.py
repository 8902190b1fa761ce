"""Commands that use a trained model: `evaluate` and `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jcas.cli.options import RunFolder, examples
from jcas.cli.output import print_results, say, warn_of_noisy_truth


@examples("jcas evaluate runs/jcas --data data/hospital_b --surface")
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
    warn_of_noisy_truth(tables)
    print_results([tables])
    if out is not None:
        write_json(out, {**tables, "per_image": scores.per_image()})


@examples(
    "jcas predict runs/jcas data/new/images --out masks --overlays",
    "jcas predict runs/jcas volume.nii.gz --out masks",
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
    say(f"{count} {'mask' if count == 1 else 'masks'} in {out}")
