"""Documents made from a new work folder keep the rows that only an earlier one had."""

import json
import sys
from pathlib import Path

import pytest
from test_benchmark_tables import write_benchmark

from jcas.benchmark import read_grid
from jcas.benchmark.summary import collect, summarize

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from earlier import with_earlier, with_earlier_lines


def summary_of(
    out: Path, *, without: tuple[str, ...] = (), jac: dict[str, float] | None = None, commit: str = "abc1234"
) -> dict:
    """Summary of a finished benchmark; cells whose name has one of the words are not finished, others score ``jac``."""
    grid = read_grid(write_benchmark(out, noise="symmetric", rate=0.5))
    for cell in grid.cells:
        results = grid.folder(cell) / "results.json"
        if any(word in cell.name for word in without):
            results.unlink()
        else:
            found = json.loads(results.read_text())
            found["jac"]["mean"] = (jac or {}).get(cell.method, found["jac"]["mean"])
            results.write_text(json.dumps(found | {"commit": commit}))
    return summarize(grid, collect(grid))


def rows(summary: dict) -> dict[str, dict]:
    return {row["method"]: row for row in summary["datasets"][0]["noises"][0]["methods"]}


def line_of(summary: dict, method: str) -> dict:
    return next(line for line in summary["datasets"][0]["noises"][0]["curves"] if line["method"] == method)


def test_rows_that_are_missing_or_have_fewer_seeds_stay_and_shares_are_made_anew(tmp_path):
    before = summary_of(tmp_path / "a")
    missing = ("volmin", "baseline__s1", "upper_bound")
    now = summary_of(tmp_path / "b", without=missing, jac={"jcas": 70.0}, commit="def5678")
    merged = with_earlier(now, before)
    found = rows(merged)
    assert found["volmin"]["jac"]["mean"]["mean"] == 53.0
    assert found["baseline"]["seeds"] == [0, 1] and found["baseline"]["jac"]["mean"]["mean"] == 45.0
    assert found["jcas"]["by_seed"] == {"0": 70.0, "1": 70.0}
    assert found["baseline"]["commits"] == {"0": "def5678", "1": "abc1234"}, "seed 0 was trained anew"
    assert merged["datasets"][0]["upper_bound"]["jac"]["mean"]["mean"] == 70.0
    # Baseline 45, upper bound 70: the new JCAS closes all of it, VolMin 8 of 25 as before.
    assert found["jcas"]["gap_recovered"]["mean"] == pytest.approx(1.0)
    assert found["volmin"]["gap_recovered"]["mean"] == pytest.approx(0.32)
    assert [found[name]["jac"]["mean"]["mark"] for name in ("jcas", "volmin", "baseline")] == ["best", "second", ""]
    assert now["unfinished"] and not merged["unfinished"]


def test_rows_of_at_least_as_many_seeds_replace_earlier_ones(tmp_path):
    before = summary_of(tmp_path / "a", jac={"volmin": 1.0})
    now = summary_of(tmp_path / "b")
    found, own = rows(with_earlier(now, before)), rows(now)
    assert {name: row["jac"] for name, row in found.items()} == {name: row["jac"] for name, row in own.items()}
    for name, row in found.items():
        for part in ("mean", "std"):
            assert row["gap_recovered"][part] == pytest.approx(own[name]["gap_recovered"][part])


def test_rows_of_two_folders_stand_in_the_order_of_the_registry(tmp_path):
    before = summary_of(tmp_path / "a", without=("baseline",))
    before["datasets"][0]["noises"][0]["methods"].reverse()
    before["datasets"][0]["noises"][0]["curves"].reverse()
    merged = with_earlier(summary_of(tmp_path / "b", without=("volmin", "jcas")), before)
    group = merged["datasets"][0]["noises"][0]
    assert [row["method"] for row in group["methods"]] == merged["datasets"][0]["methods"] == [*rows(merged)]
    assert [*rows(merged)] == ["baseline", "volmin", "jcas"]
    assert [line["method"] for line in group["curves"]] == ["upper_bound", "baseline", "volmin", "jcas"]


def test_an_earlier_curve_of_one_seed_stays_beside_a_row_of_several(tmp_path):
    before, now = summary_of(tmp_path / "a"), summary_of(tmp_path / "b", without=("volmin",))
    row, line, mean = rows(before)["volmin"], line_of(before, "volmin"), rows(before)["volmin"]["jac"]["mean"]["mean"]
    row["by_seed"], line["mean"][-1] = {"0": mean + 5, "1": mean - 5}, mean + 5
    assert line_of(with_earlier(now, before), "volmin") == line
    row["by_seed"] = {"0": mean + 8, "1": mean - 8}
    curves = with_earlier(now, before)["datasets"][0]["noises"][0]["curves"]
    assert "volmin" not in [line["method"] for line in curves]


def test_earlier_curves_that_do_not_end_at_their_scores_are_left_out(tmp_path):
    before = summary_of(tmp_path / "a")
    for line in before["datasets"][0]["noises"][0]["curves"]:
        if line["method"] in ("volmin", "baseline"):
            line["mean"][-1] -= 3.0  # predicted whole, scored in windows
    now = summary_of(tmp_path / "b", without=("volmin", "baseline__s1"))
    merged = with_earlier(now, before)
    curves = {line["method"]: line for line in merged["datasets"][0]["noises"][0]["curves"]}
    assert [*curves] == ["upper_bound", "baseline", "jcas"]
    assert curves["baseline"] == line_of(now, "baseline"), "one seed of today instead of two of then"


def test_rows_of_other_settings_or_other_labels_are_refused(tmp_path):
    before, now = summary_of(tmp_path / "a"), summary_of(tmp_path / "b")
    before["settings"]["epochs"] = 3
    with pytest.raises(ValueError, match="earlier rows have epochs=3, these 2"):
        with_earlier(now, before)
    before["settings"]["epochs"] = 2
    before["settings"]["threads"] = 7  # says nothing about the result
    with_earlier(now, before)
    before["noise_rates"][0]["class_noise_rate"] = 0.2
    with pytest.raises(ValueError, match="not the same labels"):
        with_earlier(now, before)


def test_lines_of_a_table_are_kept_by_their_keys():
    head = ["| noise | method | a | b |", "|---|---|---|---|"]
    earlier = [*head, "| x | m | 1 | 2 |", "| x | n | 3 | 4 |"]
    now = [*head, "| x | n | – | 5 |", "| y | m | 6 | 7 |"]
    kept = ["| x | m | 1 | 2 |", "| x | n | 3 | 5 |", "| y | m | 6 | 7 |"]
    assert with_earlier_lines(now, earlier, keys=2) == [*head, *kept]
    backwards = with_earlier_lines(now, earlier, keys=2, order=lambda row: -int(row[2]))
    assert backwards == [*head, *reversed(kept)]
    other = ["| noise | method | a |", "|---|---|---|"]
    assert with_earlier_lines(now, [*other, "| x | m | 1 |"], keys=2) == now  # another table
