"""Folders that benchmarks train on, of a source of the same layout as the real one."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jcas.data import open_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from prepare import few_slices, prepare


@pytest.fixture
def shared(tmp_path) -> Path:
    """Ten training, four validation and four test slices of two patients each, with three structures."""
    source = tmp_path / "shared" / "acdc"
    for folder in ("images", "masks"):
        (source / folder).mkdir(parents=True)
    with (source / "split.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "patient", "split"])
        for split, count in (("train", 10), ("val", 4), ("test", 4)):
            for index in range(count):
                name = f"{split}{index}"
                mask = np.repeat(np.arange(4, dtype=np.uint8), 4)[:, None].repeat(16, 1)
                Image.fromarray(mask * 60).save(source / "images" / f"{name}.png")
                Image.fromarray(mask).save(source / "masks" / f"{name}.png")
                writer.writerow([name, f"{split}{index % 2}", split])
    return source.parent


def test_few_slices_are_spread_over_each_split(shared, tmp_path):
    few_slices(shared / "acdc", tmp_path / "few", {"train": 5, "val": 2, "test": 4})
    dataset = open_dataset(tmp_path / "few")
    assert [record.id for record in dataset.split("train")] == [f"train{index}" for index in (0, 2, 4, 6, 8)]
    assert [len(dataset.split(split)) for split in ("val", "test")] == [2, 4] and dataset.labels.num_classes == 4
    with pytest.raises(ValueError, match="4 slices of val, 5 are asked for"):
        few_slices(shared / "acdc", tmp_path / "many", {"val": 5})


def test_only_the_folders_of_the_parts_asked_for_are_made_and_kept(shared, tmp_path):
    prepare(shared, tmp_path / "data", ["acdc", "lv"])
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["lv"]
    made = (tmp_path / "data" / "lv" / "split.csv").stat().st_mtime_ns
    prepare(shared, tmp_path / "data", ["lv"])
    assert (tmp_path / "data" / "lv" / "split.csv").stat().st_mtime_ns == made
