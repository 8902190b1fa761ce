"""Constants that are halved and doubled one at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import constants
from constants import CELLS, CONSTANTS, ELLIPSE, FACTORS, Stage, measured, name_of, table
from documents import read_section

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


TEST, REHEARSAL = Stage(*ELLIPSE, rehearsed=False), Stage(*ELLIPSE, rehearsed=True)


def finish(folder: Path, jac: float, commit: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"jac": {"mean": jac}, "commit": commit}))


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A finished cell of JCAS on ellipses, two runs with another value of a constant, and a rehearsal of all."""
    monkeypatch.setattr(constants, "KEPT", tmp_path / "constants.json")
    grid = {"cells": [{"name": "a", "noise": "ellipse", "method": "jcas", "seed": 0}]}
    cell = tmp_path / "acdc" / "cells" / "a"
    finish(cell, 62.5, "abc")
    (cell / "config.yaml").write_text("data: nowhere\nmethod: jcas\noptions: {warmup: 4}\n")
    (tmp_path / "acdc" / "grid.json").write_text(json.dumps(grid))
    for stage, scores in ((TEST, (61.0, 63.25)), (REHEARSAL, (71.0, 74.0))):
        for factor, jac in zip(FACTORS, scores, strict=True):
            finish(stage.folders(tmp_path)[name_of(CONSTANTS[0], factor)], jac, "def")
        finish(stage.folders(tmp_path)[name_of(CONSTANTS[1], 2.0)], 50.0, "def")
    finish(REHEARSAL.folders(tmp_path)[constants.AS_IT_IS], 73.0, "def")
    return tmp_path


def test_only_constants_of_a_set_with_a_finished_cell_are_tried(work):
    jobs = list(TEST.jobs(work))
    assert {values["data"] for values, *_ in jobs} == {"nowhere"}
    assert len({folder for _, folder, *_ in jobs}) == len(jobs)
    assert not any("witness" in constant.place for *_, constant, _ in jobs)
    assert not list(Stage(*CELLS, rehearsed=False).jobs(work))


def test_scores_stand_beside_the_cells_own(work):
    lines = table(measured(work, [REHEARSAL, TEST])).splitlines()
    assert lines[0] == "| constant | is | acdc, ellipse: rehearsal | acdc, ellipse: test |"
    assert lines[2].endswith("| 0.125 | 71.0, 74.0 | 61.0, 63.2 |")
    assert lines[3].endswith("| 0.5 | –, 50.0 | –, 50.0 |")
    assert "| JCAS as it is | | 73.0 | 62.5 |" in lines
    assert "commits abc, def." in lines[-2]
    assert lines[-1].endswith("acdc: 1.00 (3 runs).")


def test_other_seeds_stand_below_the_table(work):
    again = REHEARSAL.folders(work, 1)
    finish(again[constants.AS_IT_IS], 73.5, "def")
    finish(again[name_of(CONSTANTS[1], 2.0)], 51.0, "def")
    lines = table(measured(work, [REHEARSAL, TEST])).splitlines()
    assert "| JCAS as it is | | 73.0 | 62.5 |" in lines
    told = f"as it is 73.0, 73.5; {name_of(CONSTANTS[1], 2.0)} 50.0, 51.0."
    assert told in " ".join(
        line for line in lines if line.startswith("Repeated (acdc, ellipse: rehearsal, seeds 0, 1)")
    )


def test_parts_of_the_method_are_rehearsed_beside_constants(work):
    finish(REHEARSAL.folders(work)["jcas_no_screening"], 70.0, "def")
    finish(REHEARSAL.folders(work, 1)["jcas_no_screening"], 69.0, "def")
    lines = table(measured(work, [REHEARSAL, TEST])).splitlines()
    assert lines[4].startswith("| `jcas_no_screening` | | 70.0 | ")
    assert not any("jcas_no_refinement" in line for line in lines if "rehearsal" in line)
    assert any("jcas_no_screening 70.0, 69.0" in line for line in lines if line.startswith("Repeated"))


def test_the_table_of_the_document_is_that_of_the_results():
    kept = json.loads(constants.KEPT.read_text(encoding="utf-8"))
    assert read_section("docs/DEVELOPMENT.md", "constants") == table(kept)


def test_what_was_kept_stays_where_a_work_folder_lacks_it(work):
    constants.KEPT.write_text(json.dumps(measured(work, [REHEARSAL, TEST])))
    (work / "constants").rename(work / "elsewhere")
    lines = table(measured(work, [REHEARSAL, TEST])).splitlines()
    assert lines[2].endswith("| 0.125 | 71.0, 74.0 | 61.0, 63.2 |")
