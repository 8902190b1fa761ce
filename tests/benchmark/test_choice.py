"""What noisy validation labels say about finished cells, beside what the true ones say."""

import sys
from pathlib import Path

import pytest
import torch

from jcas.benchmark import plan, run_grid
from jcas.core import confusion_counts, symmetric
from jcas.data.synthetic import write_dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from choice import estimated_jaccard, lines_of


def test_the_score_against_the_truth_is_known_without_it():
    torch.manual_seed(0)
    truth = torch.zeros(1, 400, 400, dtype=torch.long)
    truth[:, 100:200, 100:300], truth[:, 250:300] = 1, 2
    believed = truth.roll(20, dims=2)  # outlines that are 20 pixels off
    transition = symmetric(3, 0.5)
    noisy = torch.multinomial(transition[truth.flatten()], 1).view_as(truth)
    both = [((believed == c) & (truth == c)).sum() / ((believed == c) | (truth == c)).sum() for c in (1, 2)]
    counts = confusion_counts(believed, noisy, 3)[0]
    assert estimated_jaccard(counts, transition) == pytest.approx(
        100 * float(sum(both)) / 2, abs=3
    )  # flips of 28,000 pixels
    assert estimated_jaccard(counts, torch.eye(3)) < 50  # against the noisy labels as they are


def test_cells_of_several_work_folders_stand_in_one_table(tmp_path):
    data = write_dataset(tmp_path / "truth", count=12, size=(40, 48), seed=1)
    noise, settings = "symmetric:rate=0.3", {"epochs": 2, "batch_size": 4}
    works = [tmp_path / "first", tmp_path / "second"]
    for work, methods in zip(works, (["jcas"], ["baseline"]), strict=True):
        grid = plan(work / "synth", [data], noises=[noise], methods=methods, settings=settings, progress=False)
        assert run_grid(grid, runner="inline", progress=False) == []
    lines = lines_of(works, "synth", noise)
    assert [line.split(" | ")[2] for line in lines] == ["`baseline`", "`jcas`"]
    for line in lines:
        jac, loss, seeds = line.split(" | ")[3:6]
        assert -20 < float(jac) < 120 and 0 < float(loss) < 3 and seeds == "0"
