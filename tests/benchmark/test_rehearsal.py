"""A rehearsal: predictions become the truth, and noise is laid over them."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from rehearsal import cast_for, config_for, differing, recoloured, rehearsal

from jcas.benchmark.cells import run_cell
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.predict import mask_predictor
from jcas.run import read_run


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("truth") / "data", count=24, size=(32, 32), seed=0)


def trained(data: Path, folder: Path) -> Path:
    """A run of JCAS on noisy labels, too short to be any good."""
    small = {"size": [32, 32], "epochs": 2, "batch_size": 8, "encoder": "tiny", "pretrained": False}
    values = {"data": str(data), "method": "jcas", "options": {"warmup": 1}, **small, "selection": "last", "threads": 1}
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


def bright_red(image: torch.Tensor) -> np.ndarray:
    return (image[0] > 0.5).numpy().astype(np.uint8)


def test_a_model_that_sees_other_colours_errs_as_often_as_the_labels():
    images = [torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    masks = [bright_red(image) for image in images]
    cast = cast_for(bright_red, images, masks, 0.1)
    strange = [bright_red(recoloured(image, cast)) for image in images]
    assert differing(strange, masks) == pytest.approx(0.1, abs=0.005)
    with pytest.raises(SystemExit, match="no colour cast"):
        cast_for(bright_red, images, masks, 0.9)


def test_unknown_labels_differ_from_nothing():
    given = [np.array([[0, 1, 255, 255]], np.uint8), np.full((1, 2), 255, np.uint8)]
    assert differing(given, [np.array([[0, 0, 0, 0]]), np.zeros((1, 2))]) == 0.5


def test_a_rehearsal_of_another_model_is_refused(truth, tmp_path):
    cell = tmp_path / "cell"
    cell.mkdir()
    (cell / "model.safetensors").write_bytes(b"a newer model")
    (tmp_path / "rehearsal").mkdir()
    (tmp_path / "rehearsal" / "written_by.txt").write_text("the digest of an older one")
    with pytest.raises(SystemExit, match="another model"):
        rehearsal(cell, tmp_path / "rehearsal")


def test_recolouring_keeps_green_and_does_nothing_without_a_cast():
    image = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(recoloured(image, 0.0), image)
    cast = recoloured(image, 0.5)
    torch.testing.assert_close(cast[1], image[1])
    assert (cast[0] <= image[0]).all()
    assert (cast[2] >= image[2]).all()
