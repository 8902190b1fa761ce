"""Masks for image files: a folder, single files or NIfTI volumes, any size, written beside each other in one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch import Tensor

from jcas.data import Dataset, files
from jcas.gallery import overlay
from jcas.inference import probabilities as predict_one
from jcas.run import Run


def predict_files(
    run: Run, sources: Sequence[Path], out: Path, *, overlays: bool = False, probabilities: bool = False
) -> int:
    """Predict every image and return how many masks were written (a volume counts once).

    Images are checked before the first mask is written, so that a wrong channel count leaves nothing behind.
    """
    images = find_images(sources)
    _expect_channels(run, images)
    run.method.eval()
    for folder in (out, out / "overlays" if overlays else out, out / "probabilities" if probabilities else out):
        folder.mkdir(parents=True, exist_ok=True)
    for path in track(images, description="predicting", console=Console(stderr=True), transient=True):
        name = files.stem(path)
        volume = files.is_volume(path)
        slices = range(files.slice_count(path)) if volume else [None]
        masks = []
        for index in slices:
            image = files.read_image(path, slice_index=index)
            probs = predict_one(run.method, image, run.config)
            mask = probs.argmax(0).to(torch.uint8)
            masks.append(mask)
            suffix = "" if index is None else f"#{index:03d}"
            if overlays:
                overlay(image, mask, run.labels.colours).save(out / "overlays" / f"{name}{suffix}.png")
            if probabilities:
                np.save(out / "probabilities" / f"{name}{suffix}.npy", probs.half().numpy())
        if volume:
            files.write_mask(out / path.name, torch.stack(masks, dim=-1), like=path)
        else:
            files.write_mask(out / f"{name}.png", masks[0])
    return len(images)


def find_images(sources: Sequence[Path]) -> list[Path]:
    """The image files that files and folders name; two of the same stem would write the same mask."""
    found: list[Path] = []
    for source in sources:
        if source.is_dir():
            found += sorted(files.list_images(source).values())
        elif source.is_file():
            found.append(source)
        else:
            raise ValueError(f"no image or folder at {source}")
    if not found:
        raise ValueError(f"no images in {', '.join(map(str, sources))}")
    seen: dict[str, Path] = {}
    for path in found:
        if files.stem(path) in seen:
            raise ValueError(f"{path} and {seen[files.stem(path)]} would write the same mask")
        seen[files.stem(path)] = path
    return found


def mask_predictor(run: Run, dataset: Dataset) -> Callable[[Tensor], NDArray[np.uint8]]:
    """A trained run as a function from an image to class ids, for a dataset of the same classes and channels."""
    if dataset.labels.names != run.labels.names:
        raise ValueError(f"{dataset.root}: classes {dataset.labels.names}, but {run.path} knows {run.labels.names}")
    if dataset.channels != run.channels:
        raise ValueError(f"{dataset.root}: {dataset.channels} channels, but {run.path} was trained on {run.channels}")

    def predict(image: Tensor) -> NDArray[np.uint8]:
        return predict_one(run.method, image, run.config).argmax(0).numpy().astype(np.uint8)

    return predict


def _expect_channels(run: Run, images: Sequence[Path]) -> None:
    for path in images:
        channels = files.image_channels(path)
        if channels != run.channels:
            raise ValueError(f"{path}: {channels} channels, but {run.path} was trained on {run.channels}")
