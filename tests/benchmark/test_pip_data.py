"""Datasets made of files inside packages; the files here are small ones of the same layout."""

import sys
from itertools import product
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from skimage import io

from jcas.data import check, open_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import pip_data


def write_volume(path: Path, values: np.ndarray, voxel: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(values, np.diag([voxel, voxel, voxel, 1])), path)


def counts(dataset):
    return {split: len(dataset.split(split)) for split in ("train", "val", "test")}


def test_brain_tissue_in_blocks_of_slices(tmp_path):
    maps = np.zeros((3, 60, 40, 60), np.uint8)  # image, grey, white
    maps[0], maps[1, 5:55, :, 5:55], maps[2, 20:40, :, 20:40] = 90, 255, 255
    maps[1, 20:40, :, 20:40] = 0
    maps[0, :, 7] = 200
    for kind, values in zip(("t1", "gm", "wm"), maps, strict=True):
        write_volume(tmp_path / pip_data._ICBM.format(kind), values)
    pip_data.brain_tissue(tmp_path / "out", downloads=tmp_path)
    dataset = open_dataset(tmp_path / "out")
    assert counts(dataset) == {"train": 24, "val": 4, "test": 8} and check(dataset) == []
    assert {record.id for record in dataset.split("val")} == {f"slice{index:03d}" for index in (6, 16, 26, 36)}
    assert dataset.load(dataset.split("train")[0], clean=False).noisy.unique().tolist() == [0, 1, 2]


def test_deep_brain_brings_the_atlas_onto_the_image(tmp_path):
    image, atlas = np.full((193, 40, 193), 50, np.int16), np.zeros((129, 27, 129), np.uint8)
    for place, ids in zip((35, 50, 65, 80), pip_data._DEEP.values(), strict=True):
        atlas[place : place + 10, :, 50:60] = ids[0]
    write_volume(tmp_path / pip_data._TEMPLATE, image)
    write_volume(tmp_path / pip_data._ATLAS, atlas, voxel=1.5)
    pip_data.deep_brain(tmp_path / "out", downloads=tmp_path)
    dataset = open_dataset(tmp_path / "out")
    assert counts(dataset) == {"train": 24, "val": 4, "test": 8}
    mask = dataset.load(dataset.split("train")[0], clean=False).noisy
    for index in range(1, 5):
        assert (mask == index).sum() == pytest.approx(15 * 15, rel=0.15)  # 10 voxels of 1.5 mm


def test_tiles_of_nuclei_do_not_overlap_across_splits(tmp_path):
    folder = tmp_path / "stardist" / "data" / "images"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    io.imsave(folder / "img2d.tif", rng.integers(0, 200, (512, 512)).astype(np.uint16), check_contrast=False)
    io.imsave(folder / "mask2d.tif", rng.integers(0, 3, (512, 512)).astype(np.uint16), check_contrast=False)
    pip_data.fluorescent_nuclei(tmp_path / "out", downloads=tmp_path)
    dataset = open_dataset(tmp_path / "out")
    assert counts(dataset) == {"train": 120, "val": 15, "test": 60}
    columns = {
        split: {int(record.id.split("_")[1]) + x for record, x in product(dataset.split(split), (0, 63))}
        for split in ("train", "val", "test")
    }
    assert max(columns["train"]) < min(columns["val"]) and max(columns["val"]) < min(columns["test"])
