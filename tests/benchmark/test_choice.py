"""What noisy validation labels say about finished cells, beside what the true ones say."""

import sys
from pathlib import Path

from jcas.benchmark import plan, run_grid
from jcas.data.synthetic import write_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from choice import flipped_cells, lines_of


def test_cells_of_several_work_folders_stand_in_one_table(tmp_path, capsys):
    data = write_dataset(tmp_path / "truth", count=12, size=(40, 48), seed=1)
    noise, settings = "symmetric:rate=0.5", {"epochs": 2, "batch_size": 4}
    works = [tmp_path / "first", tmp_path / "second"]
    for work, methods in zip(works, (["jcas"], ["baseline"]), strict=True):
        grid = plan(work / "synth", [data], noises=[noise], methods=methods, settings=settings, progress=False)
        assert run_grid(grid, runner="inline", progress=False) == []
    ((part, found, cells),) = [each for each in flipped_cells(works, ["synth"]) if each[2]]
    assert (part, found) == ("synth", noise)
    lines = lines_of(part, noise, cells)
    assert [line.split(" | ")[2] for line in lines] == ["`baseline`", "`jcas`"]
    for line in lines:
        jac, loss, seeds = line.split(" | ")[3:6]
        assert -20 < float(jac) < 120 and 0 < float(loss) < 3 and seeds == "0"
    next((works[0] / "synth" / "cells").glob("*/model.safetensors")).unlink()  # a cell that nobody can read
    ((_, _, cells),) = [each for each in flipped_cells(works, ["synth"]) if each[2]]
    assert list(cells) == ["baseline"] and "left out" in capsys.readouterr().err
