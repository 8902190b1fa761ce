"""Predictions as they are and refined: one of the two is what the run itself was scored by."""

import json
import sys
from pathlib import Path

import pytest

from jcas.benchmark import plan, run_grid
from jcas.data.synthetic import write_dataset
from jcas.run import read_run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from refinement import compared


def test_the_run_was_scored_by_what_its_validation_labels_preferred(tmp_path):
    data = write_dataset(tmp_path / "truth", count=16, size=(40, 48), seed=1)
    settings = {"epochs": 3, "batch_size": 4}
    grid = plan(
        tmp_path / "work", [data], noises=["symmetric:rate=0.3"], methods=["jcas"], settings=settings, progress=False
    )
    assert run_grid(grid, runner="inline", progress=False) == []
    folder = next((tmp_path / "work" / "cells").iterdir())
    estimated, measured = compared(folder)
    assert all(0 <= value <= 100 for value in (*estimated, *measured)) and measured[0] != measured[1]
    evidence = read_run(folder).method.evidence
    pays = bool(evidence.pays)
    last = (estimated[1] - estimated[0]) / 100  # images of the training's own size: what its last epoch saw
    before = 2 * float(evidence.gain) - last  # halfway from there
    assert abs(before) < 1 and pays == (before + last > 0)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["jac"]["mean"] == pytest.approx(measured[pays])
