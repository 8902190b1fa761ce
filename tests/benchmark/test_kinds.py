"""What labels look like before anything is trained on them."""

import sys
from pathlib import Path

import pytest

from jcas.corrupt import corrupt
from jcas.data import open_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import phantoms
from kinds import kind_of, line


@pytest.fixture(scope="module")
def vessels(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (("TRAINING", 24), ("VALIDATION", 2), ("TEST", 2)):
            patch.setattr(phantoms, name, count)
        folder = tmp_path_factory.mktemp("phantoms") / "vessels"
        phantoms.write_phantoms(folder, "vessels")
    return folder


@pytest.mark.parametrize(
    ("noise", "parameters", "drawn", "heard"),
    [
        ("dilate_erode", {"dilate_share": 1.0}, True, True),
        ("dilate_erode", {"dilate_share": 0.0}, True, False),  # half of what is red is called background
        ("symmetric", {"rate": 0.3}, False, None),
    ],
)
def test_vessels_too_wide_are_judged_by_colour_and_too_thin_ones_are_not(
    vessels, tmp_path, noise, parameters, drawn, heard
):
    folder = corrupt(vessels, noise=noise, parameters=parameters, out=tmp_path / "noisy", progress=False)
    found = kind_of(open_dataset(folder))
    assert found["drawn"] is drawn and found.get("heard") is heard and not found["habit"]
    assert line("vessels", noise, found).count("|") == 10
