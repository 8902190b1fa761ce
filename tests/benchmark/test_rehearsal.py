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
from rehearsal import config_for, recoloured, rehearsal

from jcas.benchmark.cells import run_cell
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.noise import SFDA


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


def test_the_script_is_what_the_run_predicts_and_no_true_label_takes_part(truth, tmp_path):
    noisy = corrupt(truth, noise="ellipse", out=tmp_path / "noisy", progress=False)
    cell = trained(noisy, tmp_path / "cell")
    for path in (noisy / "clean").glob("*.png"):  # nobody may look at these
        Image.fromarray(np.zeros_like(np.asarray(Image.open(path)))).save(path)
    made = rehearsal(cell, tmp_path / "rehearsal")
    test, former = masks(made, "clean", "test"), masks(noisy, "masks", "val")
    assert test.keys() == former.keys()
    assert not set(masks(made, "clean", "train")) & set(masks(noisy, "masks", "test"))
    assert any(mask.any() for mask in masks(made, "clean", "train").values())
    about = json.loads((made / "noise.json").read_text())
    assert about["noise"] == "ellipse"
    assert about["class_noise_rate"] > 0
    for name, mask in test.items():
        np.testing.assert_array_equal(mask, np.asarray(Image.open(made / "masks" / f"{name}.png")))
    assert config_for(cell, data="elsewhere") == {**config_for(cell), "data": "elsewhere"}


def test_a_model_that_sees_other_colours_stands_for_another_laboratory(truth, tmp_path):
    dataset = open_dataset(truth)

    def predictor(image: torch.Tensor) -> np.ndarray:
        return (image.mean(0) > image.mean()).numpy().astype(np.uint8)

    noise = SFDA(num_classes=dataset.labels.num_classes, predictor=predictor, source="brightness")
    noisy = corrupt(truth, noise=noise, out=tmp_path / "noisy", progress=False)
    made = rehearsal(trained(noisy, tmp_path / "cell"), tmp_path / "rehearsal")
    about = json.loads((made / "noise.json").read_text())
    assert about["noise"] == "sfda"
    assert "colour cast" in about["parameters"]["source"]


def test_recolouring_keeps_green_and_does_nothing_without_a_cast():
    image = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(recoloured(image, 0.0), image)
    cast = recoloured(image, 0.5)
    torch.testing.assert_close(cast[1], image[1])
    assert (cast[0] <= image[0]).all()
    assert (cast[2] >= image[2]).all()
