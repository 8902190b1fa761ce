"""A rehearsal: predictions become the truth, and noise is laid over them."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from rehearsal import config_for, rehearsal

from jcas.benchmark.cells import run_cell
from jcas.benchmark.noisy_sets import predicted_labels
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.predict import mask_predictor
from jcas.run import read_run


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("truth") / "data", count=24, size=(32, 32), seed=0)


def trained(data: Path, folder: Path, method: str = "jcas") -> Path:
    """A run, of JCAS on noisy labels say, too short to be any good."""
    small = {"size": [32, 32], "epochs": 2, "batch_size": 8, "encoder": "tiny", "pretrained": False}
    options = {"warmup": 1} if method == "jcas" else {}
    values = {"data": str(data), "method": method, "options": options, **small, "selection": "last", "threads": 1}
    assert run_cell(values, folder)
    return folder


def masks(folder: Path, kind: str, split: str) -> dict[str, np.ndarray]:
    with (folder / "split.csv").open(newline="") as file:
        names = [row["name"] for row in csv.DictReader(file) if row["split"] == split]
    return {name: np.asarray(Image.open(folder / kind / f"{name}.png")) for name in names}


def test_the_truth_is_what_the_run_predicts_and_no_true_label_is_read(truth, tmp_path):
    noisy = corrupt(truth, noise="ellipse", out=tmp_path / "noisy", progress=False)
    cell = trained(noisy, tmp_path / "cell")
    for path in (noisy / "clean").glob("*.png"):
        path.write_bytes(b"nobody reads this")
    made = rehearsal(cell, tmp_path / "rehearsal")
    run, dataset = read_run(cell), open_dataset(noisy)
    predict = mask_predictor(run, dataset)
    for before, now in (("train", "train"), ("val", "test")):
        found = masks(made, "clean", now)
        assert found.keys() == {record.id for record in dataset.split(before)}
        for record in dataset.split(before):
            np.testing.assert_array_equal(found[record.id], predict(dataset.load(record, clean=False).image))
    test = masks(made, "clean", "test")
    about = json.loads((made / "noise.json").read_text())
    assert about["noise"] == "ellipse"
    assert about["class_noise_rate"] > 0
    for name, mask in test.items():
        np.testing.assert_array_equal(mask, np.asarray(Image.open(made / "masks" / f"{name}.png")))
    assert config_for(cell, data="elsewhere") == {**config_for(cell), "data": "elsewhere"}


def test_labels_of_another_hospitals_model_are_rehearsed_with_the_roles_reversed(truth, tmp_path):
    other = write_dataset(tmp_path / "other", count=16, size=(32, 32), seed=1)
    source = trained(other, tmp_path / "source", "baseline")
    noise = predicted_labels(source, open_dataset(truth))
    noisy = corrupt(truth, noise=noise, out=tmp_path / "noisy", progress=False)
    cell = trained(noisy, tmp_path / "cell")
    for path in (noisy / "clean").glob("*.png"):
        path.write_bytes(b"nobody reads this")
    made = rehearsal(cell, tmp_path / "rehearsal")
    run, dataset = read_run(tmp_path / "rehearsal" / "model"), open_dataset(other)
    assert run.config.data == str(tmp_path / "rehearsal" / "believed") and run.config.method == "baseline"
    predict = mask_predictor(run, dataset)
    for split in ("train", "test"):
        given, true = masks(made, "masks", split), masks(other, "masks", split)
        assert given.keys() == {record.id for record in dataset.split(split)}
        for record in dataset.split(split):
            np.testing.assert_array_equal(masks(made, "clean", split)[record.id], true[record.id])
            if split == "train":
                np.testing.assert_array_equal(given[record.id], predict(dataset.load(record, clean=False).image))


def test_a_rehearsal_of_another_model_is_refused(truth, tmp_path):
    cell = tmp_path / "cell"
    cell.mkdir()
    (cell / "model.safetensors").write_bytes(b"a newer model")
    (tmp_path / "rehearsal").mkdir()
    (tmp_path / "rehearsal" / "written_by.txt").write_text("the digest of an older one")
    with pytest.raises(SystemExit, match="another model"):
        rehearsal(cell, tmp_path / "rehearsal")
