"""Pictures with true masks: of every class, different in every split, the same for a seed."""

import sys
from pathlib import Path

import pytest
import torch

from jcas.data import check, open_dataset
from jcas.methods.witness import colour_and_variation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import phantoms


@pytest.mark.parametrize("kind", phantoms.KINDS)
def test_phantoms_open_as_a_dataset_that_shows_every_class(kind, tmp_path, monkeypatch):
    for name, count in (("TRAINING", 6), ("VALIDATION", 2), ("TEST", 2)):
        monkeypatch.setattr(phantoms, name, count)
    phantoms.write_phantoms(tmp_path / "a", kind)
    phantoms.write_phantoms(tmp_path / "b", kind)
    for file in (tmp_path / "a").glob("*/*.png"):
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()
    dataset = open_dataset(tmp_path / "a")
    assert [len(dataset.split(split)) for split in ("train", "val", "test")] == [6, 2, 2]
    assert check(dataset) == []  # no class that the training images never show
    samples = [
        dataset.load(record, clean=False) for split in ("train", "val", "test") for record in dataset.split(split)
    ]
    assert len({sample.noisy.numpy().tobytes() for sample in samples}) == 10
    colour, variation = colour_and_variation(torch.stack([sample.image for sample in samples])).sum(0)
    assert (colour > 0.01 * variation) == (kind not in ("ultrasound", "chest", "organs"))
