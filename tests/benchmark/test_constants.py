"""Constants that are halved and doubled one at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from constants import CONSTANTS, FACTORS, folder_of, jobs_of, table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.name)
def test_every_place_is_a_number_of_the_code(constant):
    assert constant.value() > 0
    assert constant.sets


def test_every_constant_changes_where_it_is_used():
    """In a process of its own: constants stay changed as long as it lives."""
    code = f"""
import sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from constants import CONSTANTS
import jcas.engine, torch
from jcas.core import appearance, outlines
image, membership = torch.arange(64.0).view(1, 1, 8, 8) % 5, torch.ones(1, 1, 8, 8)
before = appearance.local_appearance(image, membership)
for constant in CONSTANTS:
    was = constant.value()
    constant.change(2.0)
    print(constant.value() / was)
assert outlines.REACH == appearance.REACH == 1 / 8
assert not torch.allclose(before, appearance.local_appearance(image, membership))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [float(line) for line in done.stdout.split()] == [2.0] * len(CONSTANTS)


@pytest.fixture
def work(tmp_path):
    """A finished cell of JCAS on ellipses, and two runs with another value of one constant."""
    results = {"jac": {"mean": 62.5}, "commit": "abc"}
    grid = {"cells": [{"name": "a", "noise": "ellipse", "method": "jcas", "seed": 0}]}
    (tmp_path / "acdc" / "cells" / "a").mkdir(parents=True)
    (tmp_path / "acdc" / "grid.json").write_text(json.dumps(grid))
    (tmp_path / "acdc" / "cells" / "a" / "results.json").write_text(json.dumps(results))
    for factor, jac in zip(FACTORS, (61.0, 63.25), strict=True):
        folder = folder_of(tmp_path, "acdc", CONSTANTS[0], factor)
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"jac": {"mean": jac}, "commit": "def"}))
    return tmp_path


def test_only_constants_of_a_set_with_a_finished_cell_are_tried(work):
    jobs = list(jobs_of(work, ["acdc", "lidc", "wbc"]))
    assert {cell.name for cell, *_ in jobs} == {"a"}
    assert len({folder for _, folder, *_ in jobs}) == len(jobs)
    assert not any("witness" in constant.place for *_, constant, _ in jobs)
    assert not list(jobs_of(work, ["lidc"]))


def test_scores_stand_beside_the_cells_own(work):
    lines = table(work).splitlines()
    assert lines[2].endswith("| 0.125 | 61.0, 63.2 |")
    assert lines[3] == "| JCAS as it is | | 62.5 |"
    assert lines[-1].endswith("commit abc, def.")
