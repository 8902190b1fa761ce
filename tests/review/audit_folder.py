"""Audit folders made of real files, in the format that `jcas audit` writes."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from PIL import Image
from skimage.measure import label, regionprops

from jcas.data import open_dataset

CLASSES = ("background", "organ", "lesion")
COLOURS = ((0, 0, 0), (78, 121, 167), (242, 142, 43))
AFFINE = np.array([[1.5, 0, 0, -20.0], [0, 0.8, 0.1, 7], [0, -0.1, 3, 42], [0, 0, 0, 1]])


def scene(number: int, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An image, its true mask, and a mask with a missing, a superfluous and a mistaken part (and ignored pixels)."""
    rows, columns = np.indices(size)
    height, width = size
    truth = np.zeros(size, np.uint8)
    shift = number % 3
    organ = ((rows - height * 0.5) / (height * 0.34)) ** 2 + ((columns - width * 0.42 - shift) / (width * 0.3)) ** 2 < 1
    truth[organ] = 1
    truth[(rows - height * 0.45) ** 2 + (columns - width * 0.42 - shift) ** 2 < (height * 0.12) ** 2] = 2
    given = truth.copy()
    given[: height // 2, : width // 3][truth[: height // 2, : width // 3] == 1] = 0  # missing
    given[height * 3 // 4 : height - 2, width * 4 // 5 : width - 2] = 2  # superfluous
    given[(truth == 2) & (columns > width * 0.42 + shift)] = 1  # wrong class
    given[0, :3] = 255
    truth[0, :3] = 255
    noise = np.random.default_rng(number).normal(0, 8, size)
    image = np.clip(40 + 70 * (truth == 1) + 130 * (truth == 2) + noise, 0, 255).astype(np.uint8)
    return image, truth, given


def write_dataset(
    root: Path,
    names: Sequence[str] = ("a", "b", "c", "d"),
    *,
    size: tuple[int, int] = (40, 60),
    splits: Mapping[str, str] | None = None,
) -> dict[str, np.ndarray]:
    """A dataset folder with wrong masks; returns the true ones."""
    truths = {}
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for number, name in enumerate(names):
        image, truths[name], given = scene(number, size)
        Image.fromarray(image).save(root / "images" / f"{name}.png")
        Image.fromarray(given).save(root / "masks" / f"{name}.png")
    rows = [(name, (splits or {}).get(name, "train"), name) for name in names]
    _write_csv(root / "split.csv", ["name", "split", "group"], rows)
    _write_description(root)
    return truths


def write_volumes(root: Path, *, slices: int = 3, size: tuple[int, int] = (30, 40)) -> dict[str, np.ndarray]:
    """A dataset of two NIfTI volumes with an affine that is not the identity."""
    truths = {}
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for case in ("case1", "case2"):
        scenes = [scene(index, size) for index in range(slices)]
        for folder, part in (("images", 0), ("masks", 2)):
            volume = np.stack([each[part] for each in scenes], axis=-1)
            nib.save(nib.Nifti1Image(volume, AFFINE), root / folder / f"{case}.nii.gz")
        truths |= {f"{case}#{index:03d}": each[1] for index, each in enumerate(scenes)}
    _write_csv(root / "split.csv", ["name", "split", "group"], [("case1", "train", "p1"), ("case2", "test", "p2")])
    _write_description(root)
    return truths


def write_audit(
    data: Path, out: Path, truths: Mapping[str, np.ndarray], *, wrongness: bool = True, smallest: int = 1
) -> Path:
    """The audit of a dataset by an auditor who knows the truth."""
    dataset = open_dataset(data)
    for folder in ("images", "given", "repaired", "regions", "weights", "wrongness"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    lines, issues = [], []
    names = dataset.labels.names
    for record in (r for r in dataset.records if r.id in truths):
        sample = dataset.load(record, clean=False)
        given = sample.noisy.numpy().astype(np.uint8)
        repaired = np.where(given == 255, given, truths[record.id]).astype(np.uint8)
        pairs = np.where(repaired != given, 1 + given.astype(int) * 256 + repaired, 0)
        regions = label(pairs, background=0, connectivity=1).astype(np.uint16)
        for region in regionprops(regions):
            if region.area < smallest:
                repaired[regions == region.label] = given[regions == region.label]
                regions[regions == region.label] = 0
                continue
            was, becomes = (int(m[tuple(region.coords[0])]) for m in (given, repaired))
            kind = "missing" if was == 0 else "superfluous" if becomes == 0 else "wrong_class"
            probability = round(0.99 - 0.3 / (1 + region.area), 4)
            row = [record.id, region.label, kind, names[was], names[becomes], probability]
            issues.append([*row, *region.bbox, int(region.area)])
        if len(lines) % 4 == 1:
            issues.append([record.id, 0, "mismatched_pair", "", "", 0.61, 0, 0, *given.shape, 0])
        wrong = int((repaired != given).sum())
        picture = (sample.image.numpy() * 255).round().astype(np.uint8)
        picture = picture[0] if picture.shape[0] == 1 else picture.transpose(1, 2, 0)
        heat = np.where(repaired != given, 220, 12).astype(np.uint8)
        layers = {"images": picture, "given": given, "repaired": repaired, "regions": regions, "weights": 255 - heat}
        if wrongness:
            layers["wrongness"] = heat
        for folder, pixels in layers.items():
            Image.fromarray(pixels).save(out / folder / f"{record.id}.png")
        lines.append(
            {
                "id": record.id, "image_file": str(record.image), "split": record.split, "group": record.group,
                "height": given.shape[0], "width": given.shape[1],
                "quality": round(max(0.0, 1 - 4 * wrong / given.size), 4), "expected_wrong": float(wrong),
                "per_class": {}, "issues": sum(row[0] == record.id for row in issues),
                "given_sha256": hashlib.sha256(given.tobytes()).hexdigest(),
                "source_mask": str(record.noisy), "slice_index": record.slice_index,
            }
        )  # fmt: skip
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (out / "images.jsonl").write_text(text, encoding="utf-8")
    columns = "image,region,kind,class_given,class_suggested,probability,top,left,bottom,right,pixels".split(",")
    _write_csv(out / "issues.csv", columns, issues)
    volumes = any(record.slice_index is not None for record in dataset.records)
    about = {
        "format": "1", "version": "0.1.0", "commit": None, "created": "2026-11-15T21:04:09+00:00", "run": "run",
        "data": str(data), "dataset": dataset.name, "classes": list(names), "ignore": 255,
        "colours": [list(colour) for colour in dataset.labels.colours], "out_of_sample": False, "folds": None,
        "confidence": 0.9, "images": len(lines), "kinds": {}, "layout": "nifti" if volumes else "files",
    }  # fmt: skip
    (out / "audit.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
    return out


def make_audit(root: Path, names: Sequence[str] = ("a", "b", "c", "d"), **options: object) -> Path:
    """Dataset in ``root/data``, its audit in ``root/audit``; returns the latter."""
    truths = write_dataset(root / "data", names, **options)  # type: ignore[arg-type]
    return write_audit(root / "data", root / "audit", truths)


def _write_description(root: Path) -> None:
    described = {"name": "phantom", "classes": list(CLASSES), "colours": [list(colour) for colour in COLOURS]}
    (root / "dataset.yaml").write_text(json.dumps(described), encoding="utf-8")  # JSON is YAML


def _write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(columns)
        table.writerows(rows)
