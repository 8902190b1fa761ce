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

    Every image is read before the first mask is written: a damaged one, one with the wrong number of channels, or an
    ``out`` that would overwrite an image leaves nothing behind.
    """
    images = find_images(sources)
    _check_images(run, images, out)
    run.method.eval()
    for folder in (out, out / "overlays" if overlays else out, out / "probabilities" if probabilities else out):
        folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    shown = track(images, "predicting", console=console, transient=True, disable=not console.is_terminal)
    for path in shown:
        name = files.stem(path)
        volume = files.is_volume(path)
        slices = range(files.slice_count(path)) if volume else [None]
        masks = []
        for index in slices:
            image = files.read_image(path, slice_index=index, intensity=run.intensity)
            probs = predict_one(run.method, image, run.config)
            mask = probs.argmax(0).to(torch.uint8)
            masks.append(mask)
            suffix = "" if index is None else f"#{index:03d}"
            if overlays:
                overlay(image, mask, run.labels.colours).save(out / "overlays" / f"{name}{suffix}.png")
            if probabilities:
                np.save(out / "probabilities" / f"{name}{suffix}.npy", probs.half().numpy())
        files.write_mask(_target(path, out), torch.stack(masks, dim=-1) if volume else masks[0], like=path)
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
    run.expect_same_kind(dataset)

    def predict(image: Tensor) -> NDArray[np.uint8]:
        return predict_one(run.method, image, run.config).argmax(0).numpy().astype(np.uint8)

    return predict


def _target(image: Path, out: Path) -> Path:
    """Where the mask of an image goes: a volume under its own name, a picture as PNG."""
    return out / (image.name if files.is_volume(image) else f"{files.stem(image)}.png")


def _check_images(run: Run, images: Sequence[Path], out: Path) -> None:
    sources = {path.resolve() for path in images}
    for path in images:
        if _target(path, out).resolve() in sources:
            raise ValueError(f"the mask of {path} would overwrite an image in {out}: choose another --out")
        channels = files.image_channels(path)
        if channels != run.channels:
            raise ValueError(f"{path}: {channels} channels, but {run.path} was trained on {run.channels}")
        files.read_image(path, slice_index=0 if files.is_volume(path) else None)
