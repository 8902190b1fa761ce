"""Tables from cells that the tests write: every expected number is worked out by hand."""

import json
from pathlib import Path

import pytest
import torch

from jcas.benchmark import read_grid
from jcas.benchmark.paper import TABLE_1, paper_scores
from jcas.benchmark.qualitative import closeup
from jcas.benchmark.summary import collect, gap_recovered, mark_best, marks, mean_and_deviation, summarize
from jcas.benchmark.tables import latex, markdown, noise_rates
from jcas.methods import method_names
from jcas.report import build_benchmark_report

CLASSES = ("background", "shaft", "wrist", "clasper")
JAC = {  # method -> mean Jac of seed 0 and seed 1
    "upper_bound": (65.0, 75.0),  # mean 70
    "baseline": (40.0, 50.0),  # mean 45
    "volmin": (52.0, 54.0),  # mean 53
    "jcas": (55.0, 65.0),  # mean 60
}


def write_benchmark(
    out: Path, *, dataset: str = "EndoVis18", noise: str = "ellipse", rate: float | None = None
) -> Path:
    """A finished benchmark whose shaft is 10 above, clasper 10 below the mean; Dice is Jac + 5."""
    parameters = {} if rate is None else {"rate": rate}
    label = noise if rate is None else f"{noise}:rate={rate}"
    sets = [
        {"dataset": dataset, "noise": "clean", "folder": "data/clean", "kind": "clean", "parameters": {}},
        {
            "dataset": dataset, "noise": label, "folder": "data/noisy", "kind": noise, "parameters": parameters,
            "class_noise_rate": 0.125, "affinity_noise_rate": 0.05,
        },
    ]  # fmt: skip
    cells = []
    for method, values in JAC.items():
        for seed, mean in enumerate(values):
            cell_noise = "clean" if method == "upper_bound" else label
            name = f"{dataset}__{cell_noise}__{method}__s{seed}".replace(":", "-")
            cells.append({"name": name, "dataset": dataset, "noise": cell_noise, "method": method, "seed": seed})
            jac = {"shaft": mean + 10, "wrist": mean, "clasper": mean - 10, "mean": mean}
            results = {
                "version": "0.1.0", "commit": "abc1234", "method": "baseline", "noise": noise, "seed": seed,
                "dataset": dataset, "classes": CLASSES, "colours": [[0, 0, 0]] * 4, "split": "test",
                "truth": "clean", "jac": jac, "dice": {key: value + 5 for key, value in jac.items()},
                "selected_epoch": 2, "seconds": 60.0 + 20 * seed, "peak_memory_mb": 700.0,
            }  # fmt: skip
            if method == "jcas":
                results["cpu_seconds"] = 41.0 + 10 * seed  # runs of older versions did not measure it
            folder = out / "cells" / name
            folder.mkdir(parents=True)
            (folder / "results.json").write_text(json.dumps(results))
            epochs = [{"epoch": e, "looking_only": {"split": "test", "jac": mean - 2 + e}} for e in (1, 2)]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in epochs))
    grid = {"settings": {"epochs": 2, "watch": "test", "encoder": "tiny"}, "sets": sets, "cells": cells}
    (out / "grid.json").write_text(json.dumps(grid))
    return out


@pytest.fixture
def summary(tmp_path) -> dict:
    grid = read_grid(write_benchmark(tmp_path / "bench"))
    return summarize(grid, collect(grid))


def row_of(text: str, method: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {method} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_gap_recovered_by_hand():
    assert gap_recovered(60.0, baseline=45.0, upper_bound=70.0) == pytest.approx(15 / 25)
    assert gap_recovered(40.0, baseline=45.0, upper_bound=70.0) == pytest.approx(-0.2), "worse than the baseline"
    assert gap_recovered(60.0, baseline=70.0, upper_bound=70.0) is None, "no damage to undo"
    assert gap_recovered(60.0, baseline=None, upper_bound=70.0) is None


def test_rows_hold_the_gap_of_their_noise(tmp_path):
    rows = collect(read_grid(write_benchmark(tmp_path / "bench")))
    gaps = {(row["method"], row["seed"]): row["gap_recovered"] for row in rows}
    # Baseline 45 and upper bound 70 are means over seeds; a row is one cell.
    assert gaps["jcas", 0] == pytest.approx((55 - 45) / 25) and gaps["jcas", 1] == pytest.approx((65 - 45) / 25)
    assert gaps["baseline", 0] == pytest.approx(-0.2)
    assert gaps["upper_bound", 1] is None, "it belongs to no noise"
    assert all({"dice", "jac", "seconds", "peak_memory_mb", "seed", "noise", "classes"} <= set(row) for row in rows)
    assert {row["noise"] for row in rows} == {"clean", "ellipse"}


def test_mean_and_deviation_by_hand():
    assert mean_and_deviation([2.0, 4.0, 9.0]) == (5.0, pytest.approx((26 / 2) ** 0.5))
    assert mean_and_deviation([7.0]) == (7.0, None)
    assert mean_and_deviation([None]) == (None, None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 3.0, 2.0], ["", "best", "second"]),
        ([3.0, 3.001, 2.0], ["best", "best", "second"]),  # equal as shown
        ([None, 3.0, None], ["", "", ""]),  # nothing to choose
        ([5.0, None, 4.0], ["best", "", "second"]),
    ],
)
def test_best_and_second_are_marked(values, expected):
    assert marks(values) == expected


def test_markdown_shows_means_marks_and_gap(summary):
    text = markdown(summary)
    cells = row_of(text, "jcas")
    # shaft Dice, shaft Jac, wrist, clasper, mean Dice, mean Jac, gap, seeds, time, CPU, MB, commit; sd of 55, 65 = 7.07
    assert cells[8] == "**60.00 ± 7.07** (58.45)" and cells[2] == "**70.00 ± 7.07** (75.38)"
    assert cells[9].startswith("0.60 ± 0.28") and cells[10:] == ["2", "1 min", "46 s", "700", "abc1234"]
    assert row_of(text, "volmin")[8].startswith("<u>53.00 ± 1.41</u>")
    assert row_of(text, "baseline")[8] == "45.00 ± 7.07 (45.95)" and row_of(text, "baseline")[12] == "–"
    upper = row_of(text, "upper bound")
    assert upper[8] == "70.00 ± 7.07 (63.65)", "the upper bound is no competitor: no mark"


def test_memory_that_could_not_be_measured_is_a_dash_everywhere(tmp_path):
    out = write_benchmark(tmp_path / "bench")
    for path in out.glob("cells/*jcas*/results.json"):  # as Windows leaves it
        path.write_text(json.dumps({**json.loads(path.read_text()), "peak_memory_mb": None}))
    grid = read_grid(out)
    summary = summarize(grid, collect(grid))
    assert row_of(markdown(summary), "jcas")[13] == "–" and row_of(markdown(summary), "volmin")[13] == "700"
    rows = [line for line in latex(summary).splitlines() if "& jcas &" in line]
    assert len(rows) == 1 and rows[0].endswith(r"& 70 & -- \\")
    (out / "table.json").write_text(json.dumps(summary))
    page = build_benchmark_report(out, tmp_path / "page.html").read_text()
    assert page.count('<td class="number">–</td>') == 2, "the upper bound has no gap to recover"
    assert page.count("700 MB") == 3


def test_names_of_classes_survive_latex(tmp_path):
    out = write_benchmark(tmp_path / "bench")
    grid = read_grid(out)
    summary = summarize(grid, collect(grid))
    first = summary["datasets"][0]["classes"][0]
    text = latex(json.loads(json.dumps(summary).replace(json.dumps(first), json.dumps("lV_a^2\\b"))))
    assert r"{LV\_a\textasciicircum{}2\textbackslash{}b}" in text


def test_rows_say_which_commit_trained_each_seed(tmp_path):
    out = write_benchmark(tmp_path / "bench")
    for path, commit in zip(sorted((out / "cells").glob("*jcas*")), ("fff0000", None), strict=True):
        results = json.loads((path / "results.json").read_text())
        (path / "results.json").write_text(json.dumps(results | {"commit": commit}))
    grid = read_grid(out)
    summary = summarize(grid, collect(grid))
    baseline, volmin, jcas = summary["datasets"][0]["noises"][0]["methods"]
    assert jcas["commits"] == {"0": "fff0000", "1": None}
    assert volmin["commits"] == {"0": "abc1234", "1": "abc1234"}
    del baseline["commits"]  # a summary of an older version
    text = markdown(summary)
    assert [row_of(text, name)[-1] for name in ("baseline", "volmin", "jcas")] == ["–", "abc1234", "fff0000, –"]
    assert "Version: 0.1.0.\n" in text, "the commits stand in the rows"


def test_latex_marks_like_the_paper(summary):
    text = latex(summary)
    assert r"\textbf{60.00 $\pm$ 7.07} (58.45)" in text and r"\underline{53.00 $\pm$ 1.41} (53.23)" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({line.replace(r"\&", "").count("&") for line in body if r"\multicolumn" not in line}) == 1


@pytest.mark.parametrize(
    ("dataset", "noise", "rate", "shown"),
    [
        ("EndoVis18", "ellipse", None, True),
        ("EndoVis18", "symmetric", 0.5, True),
        ("EndoVis18", "symmetric", 0.3, False),
        ("EndoVis18", "markov", None, False),
        ("acdc", "ellipse", None, False),
    ],
)
def test_paper_numbers_stand_only_beside_its_own_experiment(tmp_path, dataset, noise, rate, shown):
    grid = read_grid(write_benchmark(tmp_path / "bench", dataset=dataset, noise=noise, rate=rate))
    text = markdown(summarize(grid, collect(grid)))
    assert ("In brackets: Table 1" in text) == shown
    assert ("(" in row_of(text, "jcas")[8]) == shown


@pytest.mark.parametrize(
    ("noise", "parameters", "shown"),
    [
        ("ellipse", {}, True),
        ("ellipse", {"fit": "moments", "jitter": 0.25, "min_pixels": 12}, True),  # as noise.json says it
        ("ellipse", {"fit": "enclosing", "jitter": 0.25, "min_pixels": 12}, False),
        ("ellipse", {"jitter": 0.1}, False),
        ("symmetric", {"rate": 0.5}, True),
        ("asymmetric", {"rate": 0.5, "matrix_seed": 0}, True),
        ("asymmetric", {"rate": 0.5, "matrix_seed": 1}, False),
        ("sfda", {"source": "runs/x"}, True),
        ("clean", {}, False),  # of jcas: only the upper bound has it
    ],
)
def test_paper_numbers_need_all_parameters_of_its_noise(noise, parameters, shown):
    assert (paper_scores("EndoVis18", noise, parameters, "jcas") is not None) == shown


def test_paper_gap_is_from_the_papers_numbers(summary):
    # (58.452 - 45.951) / (63.648 - 45.951) = 0.7064
    entry = next(e for e in summary["datasets"][0]["noises"][0]["methods"] if e["method"] == "jcas")
    assert entry["gap_recovered"]["paper"] == pytest.approx(0.70639, abs=1e-5)


def test_paper_table_is_whole_and_adds_up():
    ablations = {key for key, scores in TABLE_1.items() if not scores["dice"]}
    assert len(ablations) == 5 and len(TABLE_1) == 1 + 11 + 3 * 8 + len(ablations)
    assert {method for _, method in TABLE_1} <= {"upper_bound", *method_names()}, "a row nobody could fill"
    for key, scores in TABLE_1.items():
        if key in ablations:
            continue
        for metric in ("dice", "jac"):
            parts = [scores[metric][name] for name in ("shaft", "wrist", "clasper")]
            assert sum(parts) / 3 == pytest.approx(scores[metric]["mean"], abs=2e-3), (key, metric)
    assert paper_scores("EndoVis18", "sfda", {"source": "runs/x"}, "css")["dice"]["wrist"] == 61.765


def test_rows_of_every_table_and_line_follow_the_registry(tmp_path):
    out = write_benchmark(tmp_path / "bench")
    content = json.loads((out / "grid.json").read_text())
    content["cells"].reverse()  # methods that joined a grid one after the other
    (out / "grid.json").write_text(json.dumps(content))
    grid = read_grid(out)
    dataset = summarize(grid, collect(grid))["datasets"][0]
    expected = ["baseline", "volmin", "jcas"]
    assert dataset["methods"] == [entry["method"] for entry in dataset["noises"][0]["methods"]] == expected
    assert [line["method"] for line in dataset["noises"][0]["curves"]] == ["upper_bound", *expected]


def test_an_overview_lists_methods_of_all_noises_in_one_order(summary):
    dataset = summary["datasets"][0]
    volmin = next(entry for entry in dataset["noises"][0]["methods"] if entry["method"] == "volmin")
    dataset["noises"].insert(0, {**dataset["noises"][0], "noise": "polygon", "methods": [volmin]})
    overview = markdown(summary).partition("Mean Jac (%) by noise:")[2].partition("###")[0]
    methods = [line.split("|")[1].strip() for line in overview.strip().splitlines()[2:]]
    assert methods == ["upper bound", "baseline", "volmin", "jcas"]


def test_noise_rates_say_which_labels_are_cleaner(summary):
    assert "| EndoVis18 | `ellipse` | 12.5 % | 5.0 % | pairs |" in noise_rates(summary)


def test_failed_and_unfinished_cells_are_named(tmp_path):
    out = write_benchmark(tmp_path / "bench")
    lost, broken = sorted((out / "cells").glob("*jcas*"))
    (lost / "results.json").unlink()
    (broken / "results.json").unlink()
    (broken / "error.txt").write_text("ValueError: no such thing\n\nTraceback ...\n")
    grid = read_grid(out)
    text = markdown(summarize(grid, collect(grid)))
    assert f"- `{broken.name}`: ValueError: no such thing" in text and f"- `{lost.name}`" in text


def test_curves_are_means_over_seeds(summary):
    curves = {line["method"]: line for line in summary["datasets"][0]["noises"][0]["curves"]}
    assert curves["jcas"]["epochs"] == [1, 2] and curves["jcas"]["mean"] == [59.0, 60.0]  # (54 + 64) / 2
    assert curves["upper_bound"]["mean"] == [69.0, 70.0], "drawn beside every noise"


def test_pictures_show_all_objects_and_what_is_around_them():
    truth = torch.zeros(100, 200, dtype=torch.long)
    assert closeup(truth, 255) == ((-0.5, 99.5), (-0.5, 199.5))
    truth[40:60, 90:110], truth[0, 0] = 1, 255
    assert closeup(truth, 255) == ((29.5, 69.5), (59.5, 139.5))  # 0.4 of each side, around the middle
    truth[:] = 0
    truth[2, 198] = 1
    assert closeup(truth, 255) == ((-0.5, 24.5), (149.5, 199.5))  # a quarter at least, inside the image
    truth[90:, :] = 1
    assert closeup(truth, 255) == ((-0.5, 99.5), (-0.5, 199.5))


def test_jcas_without_a_part_gets_no_mark():
    def row(method: str, value: float) -> dict:
        return {"method": method, **{metric: {"mean": {"mean": value}} for metric in ("dice", "jac")}}

    rows = [row("baseline", 1.0), row("gce", 2.0), row("jcas_no_intra", 4.0), row("jcas", 3.0)]
    mark_best(rows, ())
    assert [each["jac"]["mean"]["mark"] for each in rows] == ["", "second", "", "best"]
