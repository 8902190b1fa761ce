"""Patients in parts, each held out once, and what single readers say there."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jcas.data import open_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from folds import folds_of, merged, table, write_fold
from prepare import read_split


@pytest.fixture
def readers(tmp_path):
    """Twelve patients of two crops with two readers each, three of them kept for the test."""
    source, rows = tmp_path / "lidc4", []
    for folder in ("images", "raters"):
        (source / folder).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(24):
        name, patient = f"crop{number}", f"{number // 2:02}"
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(source / "images" / f"{name}.png")
        for reader in (1, 2):
            Image.fromarray(rng.integers(0, 2, (8, 8), dtype=np.uint8)).save(
                source / "raters" / f"{name}_r{reader}.png"
            )
        rows.append({"name": name, "patient": patient, "n_raters": "2", "split": "test" if number < 6 else "train"})
    with (source / "split.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return source


def test_every_patient_but_those_of_the_test_is_held_out_once(readers):
    folds = folds_of(read_split(readers), 4)
    held = [{row["patient"] for row in rows if row["split"] == "test"} for rows in folds]
    assert sorted(patient for fold in held for patient in fold) == [f"{number:02}" for number in range(3, 12)]
    for rows, own in zip(folds, held, strict=True):
        parts = {split: {row["patient"] for row in rows if row["split"] == split} for split in ("train", "val")}
        assert parts["train"] and parts["val"]
        assert not (parts["train"] & parts["val"] or own & (parts["train"] | parts["val"]))
        assert len(rows) == 18  # all crops of a patient stay together


def test_a_fold_knows_no_other_label_than_one_readers(readers, tmp_path):
    rows = folds_of(read_split(readers), 4)[0]
    write_fold(readers, tmp_path / "fold", rows)
    dataset = open_dataset(tmp_path / "fold")
    assert not (tmp_path / "fold" / "clean").exists()
    assert not dataset.truth_is_clean("test")
    for record in dataset.split("test"):
        given = dataset.load(record, clean=False).noisy.numpy()
        reads = [np.asarray(Image.open(readers / "raters" / f"{record.id}_r{reader}.png")) for reader in (1, 2)]
        assert any(np.array_equal(given, read) for read in reads)


def test_differences_are_those_of_the_same_folds():
    jac = {"jcas": [60.0, 70.0], "baseline": [55.0, 67.0]}
    found = {
        method: {
            fold: [{"jac": {"mean": value + seed}, "commit": "abc"} for seed in (-1, 1)]
            for fold, value in enumerate(values)
        }
        for method, values in jac.items()
    }
    lines = table(found).splitlines()[2:]
    assert lines == [
        "| `baseline` | 55.0 | 67.0 | – | – | – | -4.0 ± 1.0 | 2 | abc |",
        "| `jcas` | 60.0 | 70.0 | – | – | – | – | 2 | abc |",
    ]


def test_folds_with_more_seeds_are_kept():
    one, two, newer = [{"jac": 1}], [{"jac": 1}, {"jac": 2}], [{"jac": 3}]
    before = {"jcas": {0: two, 1: one}, "baseline": {0: one}}
    assert merged(before, {"jcas": {0: newer, 1: newer}, "gce": {0: newer}}) == {
        "jcas": {0: two, 1: newer},
        "baseline": {0: one},
        "gce": {0: newer},
    }
