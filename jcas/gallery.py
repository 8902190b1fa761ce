"""Pictures of a run: predicted masks at full size, and a small gallery for the report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from jcas.config import Config
from jcas.data import Dataset, Record, write_mask
from jcas.data.resize import resize_image, resize_labels
from jcas.inference import predict_records
from jcas.methods import Method
from jcas.metrics import SegmentationScores
from jcas.run import write_json

GALLERY_IMAGES = 24
GALLERY_TRAINING_IMAGES = 6
GALLERY_SIDE = 256  # pixels of the longer side


def write_masks(folder: Path, records: Sequence[Record], masks: Mapping[str, Tensor]) -> None:
    """One PNG per image; the slices of a volume go back into one NIfTI file with the volume's affine."""
    folder.mkdir(parents=True, exist_ok=True)
    volumes: dict[Path, list[Record]] = defaultdict(list)
    for record in records:
        if record.slice_index is None:
            write_mask(folder / f"{record.id}.png", masks[record.id])
        else:
            volumes[record.image].append(record)
    for image, slices in volumes.items():
        slices.sort(key=lambda record: record.slice_index or 0)
        write_mask(folder / image.name, torch.stack([masks[record.id] for record in slices], dim=-1), like=image)


def spread(records: Sequence[Record], count: int) -> list[Record]:
    """At most ``count`` records, evenly over all of them.

    By id, not by score: runs on the same data show the same images, so that a report can set them side by side.
    """
    ordered = sorted(records, key=lambda record: record.id)
    count = min(count, len(ordered))
    return [ordered[round(i * (len(ordered) - 1) / max(count - 1, 1))] for i in range(count)]


def write_gallery(
    out: Path, method: Method, dataset: Dataset, split: str, masks: Mapping[str, Tensor], config: Config
) -> None:
    """Given, true and predicted labels of a few training images and of some of a split, whose predictions are there."""
    learned = spread(dataset.split("train"), GALLERY_TRAINING_IMAGES)
    shown = [(record, predicted) for record, predicted, _ in predict_records(method, dataset, learned, config)]
    shown += [(record, masks[record.id]) for record in spread(dataset.split(split), GALLERY_IMAGES)]
    folder = out / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, (record, predicted) in enumerate(shown):
        sample = dataset.load(record, clean=True)
        assert sample.clean is not None  # the given labels where there are no others
        stem = f"{number:03d}_{re.sub(r'[^A-Za-z0-9_-]+', '_', record.id)}"
        layers = {"given": sample.noisy, "predicted": predicted}
        entry: dict[str, Any] = {"id": record.id, "split": record.split}
        # Not against given labels where others are compared with the truth.
        if record.clean is not None or record.id in dataset.trusted or not dataset.truth_is_clean(split):
            entry["jac"] = _jac(dataset, predicted, sample.clean)
        if record.clean is not None:
            layers["clean"] = sample.clean
            ignore = dataset.labels.ignore
            judged = sample.clean.masked_fill(sample.noisy == ignore, ignore)
            entry["given_jac"] = _jac(dataset, sample.noisy, judged)
        files = {"image": f"{stem}_image.jpg"}
        size = _small(sample.image.shape[1:])
        _save_image(folder / files["image"], resize_image(sample.image, size))
        for layer, labels in layers.items():
            files[layer] = f"{stem}_{layer}.png"
            write_mask(folder / files[layer], resize_labels(labels.to(torch.uint8), size))
        entries.append({**entry, "files": files})
    write_json(folder / "gallery.json", entries)


def _jac(dataset: Dataset, labels: Tensor, truth: Tensor) -> float | None:
    scores = SegmentationScores(dataset.labels)
    scores.update(labels, truth, "")
    mean = scores.compute()["jac"]["mean"]
    return None if mean is None else float(mean)


def overlay(image: Tensor, mask: Tensor, colours: Sequence[Sequence[int]], *, opacity: float = 0.5) -> Image.Image:
    """The image with its foreground classes tinted."""
    grey_or_rgb = image if image.shape[0] == 3 else image[:1].expand(3, -1, -1)
    pixels = grey_or_rgb.permute(1, 2, 0).numpy() * 255
    palette = np.zeros((256, 3))
    palette[: len(colours)] = colours
    foreground = (mask.numpy() > 0) & (mask.numpy() < len(colours))
    blend = np.where(foreground[..., None], (1 - opacity) * pixels + opacity * palette[mask.numpy()], pixels)
    return Image.fromarray(blend.clip(0, 255).astype(np.uint8))


def _small(size: Sequence[int]) -> tuple[int, int]:
    scale = min(1.0, GALLERY_SIDE / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _save_image(path: Path, image: Tensor) -> None:
    rgb = image if image.shape[0] == 3 else image[:1].expand(3, -1, -1)
    pixels = (rgb.permute(1, 2, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    Image.fromarray(pixels).save(path, quality=88)
