"""Small grids, trained for real: what is shared, what is repeated, what fails, what is drawn."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jcas.benchmark import Grid, exclusive, plan, read_grid, run_grid, write_tables
from jcas.benchmark.cells import write_error
from jcas.benchmark.grid import OF_A_CELL
from jcas.benchmark.noisy_sets import parse_noise, wrong_shares
from jcas.cli import main
from jcas.config import make_config
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.methods import METHODS, check_options
from jcas.methods.baseline import Baseline
from jcas.report import build_benchmark_report

SETTINGS = {"epochs": 1, "batch_size": 4}
NOISE = "pair_flip:rate=0.3"


def jcas(*arguments: object, capsys: pytest.CaptureFixture) -> tuple[int, str]:
    """Run the command in this process; returns exit code and stderr."""
    before, sys.argv = sys.argv, ["jcas", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = before
    return int(stop.value.code or 0), capsys.readouterr().err


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("grid") / "truth", count=12, size=(40, 48), seed=1, domain="source")


@pytest.fixture(scope="module")
def finished(truth, tmp_path_factory) -> Path:
    """Upper bound, baseline and volmin under two noises, two seeds for the last."""
    out = tmp_path_factory.mktemp("benchmark") / "out"
    plan(out, [truth], noises=[NOISE, "none"], methods=["upper_bound", "baseline"], settings=SETTINGS, progress=False)
    grid = plan(out, [truth], noises=[NOISE], methods=["volmin"], seeds=2, settings=SETTINGS, progress=False)
    assert run_grid(grid, runner="inline", progress=False) == []
    write_tables(grid)
    return out


def begin(grid: Grid) -> None:
    """Leave the first cell as if it had been stopped after an epoch."""
    checkpoint = grid.folder(grid.cells[0]) / "checkpoints" / "last.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()


# --- what a cell is ---------------------------------------------------------------------------------------------------


def test_cells_share_all_but_data_method_labels_and_seed(finished):
    grid = read_grid(finished)
    configs = [grid.config(cell).model_dump() for cell in grid.cells]
    for key in configs[0]:
        values = {json.dumps(config[key]) for config in configs}
        assert len(values) == 1 or key in OF_A_CELL, key
    assert all(config["options"] == {} for config in configs), "every method with its own paper's settings"
    assert configs[0]["watch"] == "test" and configs[0]["threads"] == 1


@pytest.mark.parametrize("flags", [{}, {"encoder_learning_rate": 0.001}, {"pretrained": False}, {"pretrained": True}])
@pytest.mark.parametrize("encoder", ["lite0", "tiny", "ocrnet:lite0"])
def test_a_cell_trains_as_the_command_train_would(truth, tmp_path, monkeypatch, encoder, flags):
    monkeypatch.setattr("jcas.config._lite0_weights_installed", lambda: True)
    settings, methods = {**SETTINGS, **flags, "encoder": encoder}, ["baseline", "jcas", "raunet", "lwanet", "css"]
    plan(tmp_path / "out", [truth], noises=["none"], methods=methods, settings=settings, progress=False)
    grid = read_grid(tmp_path / "out")
    for cell in grid.cells:
        alone = {**settings, "data": str(truth), "method": cell.method, "threads": 1, "watch": "test"}
        assert grid.config(cell).resolved() == make_config(alone).resolved(), cell.method


def test_networks_of_an_older_grid_go_on_as_they_were_trained(truth, tmp_path, monkeypatch):
    monkeypatch.setattr("jcas.config._lite0_weights_installed", lambda: True)
    out, settings = tmp_path / "out", {**SETTINGS, "encoder": "lite0"}
    begin(plan(out, [truth], noises=["none"], methods=["raunet"], settings=settings, progress=False))
    content = json.loads((out / "grid.json").read_text())
    del content["given"]
    (out / "grid.json").write_text(json.dumps(content))
    grid = plan(out, [truth], noises=["none"], methods=["raunet"], seeds=2, settings=settings, progress=False)
    assert [grid.config(cell).pretrained for cell in grid.cells] == [True, True]


def test_an_extension_must_give_the_networks_the_same_flags(truth, tmp_path):
    arguments = {"noises": ["none"], "methods": ["raunet"], "progress": False}
    begin(plan(tmp_path / "out", [truth], settings=SETTINGS, **arguments))
    rate = {"encoder_learning_rate": 0.002}  # what the rule gives to the others
    with pytest.raises(ValueError, match=r"its cells have encoder_learning_rate=None, got 0\.002"):
        plan(tmp_path / "out", [truth], settings={**SETTINGS, **rate}, **arguments)


def test_methods_whose_papers_know_the_noise_are_told_how_many_labels_of_each_class_are_wrong(truth, tmp_path):
    methods = ["coteaching", "trinet", "baseline"]
    grid = plan(tmp_path / "out", [truth], noises=[NOISE, "none"], methods=methods, settings=SETTINGS, progress=False)
    dataset = open_dataset(grid.data(next(found for found in grid.sets if found.noise == NOISE)))
    samples = [dataset.load(record, clean=True) for record in dataset.split("train")]
    noisy, clean = (np.concatenate([getattr(s, kind).flatten() for s in samples]) for kind in ("noisy", "clean"))
    expected = [(clean[noisy == c] != c).mean() for c in range(dataset.labels.num_classes)]
    told = {(cell.method, cell.noise): grid.config(cell).options for cell in grid.cells}
    for method in ("coteaching", "trinet"):
        assert told[method, NOISE]["forget_rate"] == pytest.approx(expected, abs=1e-4)
        assert "forget_rate" not in told[method, "none"]  # nobody knows
        assert check_options(method, told[method, NOISE]) == told[method, NOISE]
    assert told["baseline", NOISE] == {}


def test_cells_planned_before_keep_what_they_were_told(truth, tmp_path):
    settings = {"settings": SETTINGS, "progress": False}
    first = plan(tmp_path / "out", [truth], noises=[NOISE], methods=["coteaching"], **settings)
    grid = plan(tmp_path / "out", [truth], noises=[NOISE], methods=["baseline"], **settings)
    assert first.config(first.cells[0]).options["forget_rate"] == grid.config(grid.cells[0]).options["forget_rate"]


def test_shares_of_wrong_labels_by_given_class(tmp_path):
    for folder in ("images", "masks", "clean"):
        (tmp_path / folder).mkdir()
    given = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 255, 255]], np.uint8)
    true = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [2, 2, 0, 0]], np.uint8)
    for folder, values in (("images", given), ("masks", given), ("clean", true)):
        Image.fromarray(values).save(tmp_path / folder / "a.png")
    (tmp_path / "dataset.yaml").write_text("name: tiny\nclasses: [background, a, b, c]\n")
    (tmp_path / "split.csv").write_text("name,split\na,train\n")
    assert wrong_shares(open_dataset(tmp_path)) == [
        0.25,
        0.99,
        0,
        0,
    ]  # all wrong: a little is left; no label: none wrong


def test_a_noise_is_made_once_and_only_the_upper_bound_trains_on_truth(finished, truth):
    grid = read_grid(finished)
    folders = {(cell.method, cell.noise, grid.config(cell).data) for cell in grid.cells}
    assert len({data for method, noise, data in folders if noise == NOISE}) == 1
    assert {data for _, noise, data in folders if noise == "none"} == {str(truth.resolve())}
    clean = [cell for cell in grid.cells if cell.method == "upper_bound"]
    assert [grid.config(cell).labels for cell in clean] == ["clean"], "one upper bound for all noises"
    dataset = open_dataset(grid.config(clean[0]).data)
    samples = [dataset.load(record, clean=True) for record in dataset.records]
    assert all((sample.noisy == sample.clean).all() for sample in samples), "its validation labels are true too"


def test_training_seeds_see_the_same_noisy_labels(finished):
    grid = read_grid(finished)
    seeds = [cell for cell in grid.cells if cell.method == "volmin"]
    assert [cell.seed for cell in seeds] == [0, 1] and len({grid.config(cell).data for cell in seeds}) == 1


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("none", "none", {}),
        ("symmetric:rate=0.5", "symmetric", {"rate": 0.5}),
        ("matrix:matrix=[[0.9,0.1],[0.2,0.8]]", "matrix", {"matrix": [[0.9, 0.1], [0.2, 0.8]]}),
        ("ellipse:a=1,b=[1,2],c=text", "ellipse", {"a": 1, "b": [1, 2], "c": "text"}),
    ],
)
def test_noise_is_read_from_the_command_line(text, name, parameters):
    spec = parse_noise(text)
    assert (spec.name, spec.parameters) == (name, parameters)


def test_labels_of_a_source_model_are_a_noise_of_the_grid(finished, truth, tmp_path):
    source = finished / "cells" / "synthetic-source__clean__upper_bound__s0"
    grid = plan(tmp_path / "sfda", [truth], noises=[f"sfda:{source}"], methods=["baseline"], progress=False)
    assert grid.sets[0].kind == "sfda" and grid.cells[0].noise == f"sfda:{source.name}"
    assert 0 < grid.sets[0].class_noise_rate < 1


# --- whose numbers stand under a name ---------------------------------------------------------------------------------


def named_copy(truth: Path, folder: Path, name: str) -> Path:
    """The dataset once more, in another folder and under another name."""
    text = (Path(shutil.copytree(truth, folder)) / "dataset.yaml").read_text()
    (folder / "dataset.yaml").write_text(text.replace("synthetic-source", name))
    return folder


@pytest.mark.parametrize("names", [("肝脏", "心脏"), ("my data", "my-data"), ("a:b", "a-b")])
def test_names_alike_in_file_names_share_nothing(truth, tmp_path, names):
    data = [named_copy(truth, tmp_path / str(number), name) for number, name in enumerate(names)]
    grid = plan(tmp_path / "out", data, noises=[NOISE], methods=["baseline"], progress=False)
    assert [cell.dataset for cell in grid.cells] == list(names)
    assert len({cell.name for cell in grid.cells}) == len({found.folder for found in grid.sets}) == 2
    assert [open_dataset(grid.config(cell).data).name for cell in grid.cells] == list(names)


def test_another_folder_of_the_same_name_is_refused_unless_the_first_has_moved(truth, tmp_path, capsys):
    first, second = (Path(shutil.copytree(truth, tmp_path / name / "data")) for name in "xy")
    out = tmp_path / "out"
    plan(out, [first], noises=[NOISE], methods=["baseline"], settings=SETTINGS, progress=False)
    before = (out / "grid.json").read_bytes()
    flags = ("--methods", "volmin", "--epochs", 1, "--batch-size", 4, "--out", out)
    for noise in (NOISE, "none"):
        code, err = jcas("benchmark", second, "--noise", noise, *flags, capsys=capsys)
        assert code == 2 and err.strip().count("\n") == 0
        assert f"its 'synthetic-source' is {first}, got {second}" in err
    assert (out / "grid.json").read_bytes() == before and len(list((out / "data").iterdir())) == 1
    first.rename(tmp_path / "moved")
    grid = plan(out, [tmp_path / "moved"], noises=[NOISE], methods=["volmin"], settings=SETTINGS, progress=False)
    assert len(grid.cells) == 2 and grid.sets[0].root == str(tmp_path / "moved")


@pytest.mark.parametrize("change", ["mask", "image", "split"])
def test_a_dataset_that_has_changed_is_refused(truth, tmp_path, capsys, change):
    data, out = Path(shutil.copytree(truth, tmp_path / "data")), tmp_path / "out"
    plan(out, [data], noises=[NOISE], methods=["baseline"], settings=SETTINGS, progress=False)
    mask = next((data / "masks").iterdir())
    if change == "mask":
        Image.fromarray(np.asarray(Image.open(mask)) * 0).save(mask)
    elif change == "image":
        for folder in ("images", "masks"):
            shutil.copyfile(data / folder / mask.name, data / folder / "another.png")
        with (data / "split.csv").open("a") as file:
            file.write("another,train\n")
    else:
        text = (data / "split.csv").read_text()
        (data / "split.csv").write_text(text.replace(f"{mask.stem},train", f"{mask.stem},test"))
        assert (data / "split.csv").read_text() != text
    flags = ("--methods", "volmin", "--epochs", 1, "--batch-size", 4, "--out", out)
    code, err = jcas("benchmark", data, "--noise", "none", *flags, capsys=capsys)
    assert code == 2 and err.strip().count("\n") == 0 and "have changed since" in err


def test_a_grid_that_does_not_know_its_sources_is_extended_and_keeps_its_cells(truth, tmp_path):
    data, out = named_copy(truth, tmp_path / "data", "my data"), tmp_path / "out"
    arguments = {"noises": [NOISE], "settings": SETTINGS, "progress": False}
    old = plan(out, [data], methods=["baseline"], **arguments)
    content = json.loads((out / "grid.json").read_text())
    for found in content["sets"]:
        del found["root"], found["run"], found["labels"]
    content["cells"][0]["name"] = "my-data__pair_flip-rate=0.3__baseline__s0"  # as older versions called it
    (out / "grid.json").write_text(json.dumps(content))
    data = Path(shutil.copytree(data, tmp_path / "elsewhere"))
    grid = plan(out, [data], methods=["baseline", "volmin"], **arguments)
    assert [cell.method for cell in grid.cells] == ["baseline", "volmin"]
    assert grid.cells[0].name == content["cells"][0]["name"] != old.cells[0].name


def test_models_of_one_name_are_told_apart(finished, truth, tmp_path):
    run = finished / "cells" / "synthetic-source__clean__upper_bound__s0"
    first, second = (Path(shutil.copytree(run, tmp_path / name / "run")) for name in "ab")
    arguments = {"methods": ["baseline"], "progress": False}
    with pytest.raises(ValueError, match="would both be called 'sfda:run'"):
        plan(tmp_path / "out", [truth], noises=[f"sfda:{first}", f"sfda:{second}"], **arguments)
    same = f"sfda:{first / '..' / 'run'}"
    assert len(plan(tmp_path / "out", [truth], noises=[f"sfda:{first}", same], **arguments).sets) == 1
    with pytest.raises(ValueError, match=f"its 'sfda:run' is {first}, got {second}"):
        plan(tmp_path / "out", [truth], noises=[f"sfda:{second}"], **arguments)
    shutil.rmtree(first)
    plan(tmp_path / "out", [truth], noises=[f"sfda:{second}"], **arguments)


# --- continuing -------------------------------------------------------------------------------------------------------


def test_finished_cells_are_never_repeated(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*")}
    assert run_grid(read_grid(finished), runner="inline", progress=False) == []
    assert {path: path.stat().st_mtime_ns for path in finished.glob("cells/*/*")} == before


def test_an_extension_must_keep_the_shared_settings(finished, truth):
    other = {**SETTINGS, "epochs": 2}
    with pytest.raises(ValueError, match="its cells have epochs=1, got 2"):
        plan(finished, [truth], noises=["none"], methods=["volmin"], settings=other, progress=False)


def test_settings_may_change_until_a_cell_has_begun(truth, tmp_path):
    out, flags = tmp_path / "out", {"noises": ["none"], "methods": ["baseline", "css"], "progress": False}
    first = plan(out, [truth], settings=SETTINGS, **flags)
    write_error(first.folder(first.cells[0]), "ValueError: something that other settings put right")
    other = {**SETTINGS, "epochs": 2, "learning_rate": 0.004}
    grid = plan(out, [truth], settings=other, **flags)
    assert grid.cells == first.cells and read_grid(out) == grid
    configs = [grid.config(cell) for cell in grid.cells]
    assert [config.epochs for config in configs] == [2, 2]
    assert [config.resolved().encoder_learning_rate for config in configs] == [0.004, 0.004], "as given now"
    begin(grid)
    with pytest.raises(ValueError, match="its cells have epochs=2, got 1"):
        plan(out, [truth], settings=SETTINGS, **flags)


def test_a_grid_older_than_a_setting_is_extended(finished, truth, tmp_path):
    out = Path(shutil.copytree(finished, tmp_path / "old"))
    content = json.loads((out / "grid.json").read_text())
    del content["settings"]["deterministic"]
    (out / "grid.json").write_text(json.dumps(content))
    grid = plan(out, [truth], noises=["ellipse"], methods=["baseline"], settings=SETTINGS, progress=False)
    assert grid.settings["deterministic"] is True
    with pytest.raises(ValueError, match="its cells have deterministic=True, got False"):
        plan(out, [truth], noises=["ellipse"], methods=["baseline"], settings={**SETTINGS, "deterministic": False})


def test_two_grids_cannot_run_in_one_folder(tmp_path):
    with exclusive(tmp_path / "out"), pytest.raises(ValueError, match="another benchmark is running"):
        with exclusive(tmp_path / "out"):
            pass


def test_half_a_start_without_a_checkpoint_begins_anew(truth, tmp_path):
    grid = plan(tmp_path / "out", [truth], noises=["none"], methods=["baseline"], settings=SETTINGS, progress=False)
    folder = grid.folder(grid.cells[0])
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("half a")
    assert run_grid(grid, runner="inline", progress=False) == [] and grid.is_finished(grid.cells[0])


# --- failures and new methods -----------------------------------------------------------------------------------------

METHOD_FILE = '''
from jcas.methods import METHODS
from jcas.methods.baseline import Baseline

class {name}(Baseline):
    """Baseline with half the loss."""

    def forward(self, batch):
        {body}

METHODS["{key}"] = {name}
'''


@pytest.fixture
def add_method(tmp_path, monkeypatch):
    """Write a method as one file with one line that registers it, and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name: str, body: str) -> None:
        module = f"method_{name}"
        (tmp_path / f"{module}.py").write_text(METHOD_FILE.format(name=name.title(), key=name, body=body))
        monkeypatch.setitem(METHODS, name, Baseline)  # so that the registration is undone after the test
        importlib.invalidate_caches()
        sys.modules.pop(module, None)
        importlib.import_module(module)

    return add


HALF = "return {key: value / 2 for key, value in super().forward(batch).items()}"


def test_a_method_of_one_file_and_one_line_joins_the_grid(truth, tmp_path, add_method):
    add_method("half", HALF)
    grid = plan(tmp_path / "out", [truth], noises=[NOISE], methods=["half"], settings=SETTINGS, progress=False)
    assert run_grid(grid, runner="inline", progress=False) == []
    write_tables(grid)
    assert "| half |" in (tmp_path / "out" / "table.md").read_text()
    assert json.loads((tmp_path / "out" / "table.json").read_text())["rows"][0]["method"] == "half"


def test_a_failed_cell_is_recorded_and_stops_no_other(truth, tmp_path, add_method, capsys):
    add_method("broken", "raise FloatingPointError('no such luck')")
    out = tmp_path / "out"
    flags = ("--epochs", 1, "--batch-size", 4, "--runner", "inline", "--no-progress", "--out", out)
    code, err = jcas("benchmark", truth, "--noise", NOISE, "--methods", "broken,baseline", *flags, capsys=capsys)
    grid = read_grid(out)
    broken, baseline = grid.cells
    assert code == 1 and err.count(f"{broken.name}: FloatingPointError: no such luck") == 1
    assert "jcas: 1 of 2 cells failed" in err
    assert not grid.is_finished(broken) and grid.is_finished(baseline)
    assert "Traceback" in (out / "cells" / broken.name / "error.txt").read_text()
    assert f"- `{broken.name}`: FloatingPointError: no such luck" in (out / "table.md").read_text()

    code, err = jcas("benchmark", "--runner", "inline", "--out", out, capsys=capsys)  # with progress
    assert code == 1 and err.count(f"{broken.name}: FloatingPointError: no such luck") == 1

    add_method("broken", HALF)  # repaired: only this cell runs
    before = (grid.folder(baseline) / "results.json").stat().st_mtime_ns
    code, _ = jcas("benchmark", "--runner", "inline", "--no-progress", "--out", out, capsys=capsys)
    assert code == 0 and grid.is_finished(broken) and grid.error(broken) is None
    assert (grid.folder(baseline) / "results.json").stat().st_mtime_ns == before


# --- what it leaves behind --------------------------------------------------------------------------------------------


def test_tables_and_figures_are_drawn_from_finished_cells(finished, capsys):
    for name in (
        "table.md",
        "table.json",
        "table.tex",
        "noise_rates.md",
        "curves.png",
        "curves.svg",
        "qualitative.png",
    ):
        (finished / name).unlink()
    code, _ = jcas("benchmark", "--out", finished, "--tables", capsys=capsys)
    assert code == 0
    rows = json.loads((finished / "table.json").read_text())["rows"]
    assert len(rows) == 1 + 2 + 2  # upper bound, baseline under two noises, volmin with two seeds
    for row in rows:
        stored = json.loads((finished / "cells" / row["cell"] / "results.json").read_text())
        assert (row["jac"], row["dice"], row["seconds"]) == (stored["jac"], stored["dice"], stored["seconds"])
    shown = json.loads((finished / "table.json").read_text())["datasets"][0]
    volmin = next(e for group in shown["noises"] for e in group["methods"] if e["method"] == "volmin")
    own = [row for row in rows if row["method"] == "volmin"]
    assert volmin["seeds"] == [0, 1] and volmin["commits"] == {str(row["seed"]): row["commit"] for row in own}
    for name in (*shown["classes"], "mean"):
        assert volmin["jac"][name]["mean"] == pytest.approx(sum(row["jac"][name] for row in own) / 2)
        assert {"std", "mark", "paper"} <= volmin["dice"][name].keys()
    assert volmin["gap_recovered"].keys() >= {"mean", "std"} and volmin["seconds"] > 0 < volmin["peak_memory_mb"]
    assert not (finished / "summary.json").exists()
    wide = {name: Image.open(finished / name).size for name in ("curves.png", "qualitative.png")}
    assert all(min(size) > 200 for size in wide.values())
    assert (finished / "curves.svg").read_text().count("<svg") == 1
    rates = (finished / "noise_rates.md").read_text()
    assert f"`{NOISE}` | 30." in rates or f"`{NOISE}` | 29." in rates  # the rate that was asked for, in percent
    assert "labels as given | unknown" in rates
    table = (finished / "table.md").read_text()
    assert "±" in table, "volmin has two seeds"
    assert "No clean/ for labels as given" in table and "### labels as given" in table and "none" not in table


def test_data_without_images_to_score_on_are_refused_before_training(truth, tmp_path):
    shutil.copytree(truth, tmp_path / "data")
    split = tmp_path / "data" / "split.csv"
    split.write_text(split.read_text().replace(",test", ",train").replace(",val", ",train"))
    with pytest.raises(ValueError, match="no test or val images to score methods on"):
        plan(tmp_path / "out", [tmp_path / "data"], noises=[NOISE], methods=["baseline"], progress=False)


def test_flags_of_new_cells_need_their_data(tmp_path, capsys):
    code, error = jcas("benchmark", "--out", tmp_path, "--seeds", 3, capsys=capsys)
    assert code == 2 and "which datasets?" in error and not list(tmp_path.iterdir())


def test_a_mistyped_folder_is_not_made(tmp_path, capsys):
    code, error = jcas("benchmark", "--out", tmp_path / "typo", capsys=capsys)
    assert code == 2 and "no benchmark here" in error and not list(tmp_path.iterdir())


def test_report_of_a_benchmark_is_one_page(finished, tmp_path, capsys):
    code, _ = jcas("report", finished, "--out", tmp_path / "page.html", capsys=capsys)
    page = (tmp_path / "page.html").read_text()
    assert code == 0 and "volmin" in page and NOISE in page
    assert "labels as given: baseline reaches" in page and ", none" not in page
    # One epoch is a dot: three methods under the noise; under none only the upper bound has a clean truth to watch.
    assert page.count('class="dot') == 3 + 1 and "has no clean truth" in page
    assert "Learnt noise" in page and 'class="heat"' in page and "Seeds: 0, 1." in page
    assert "data:image/webp;base64," in page and "http://" not in page and "https://" not in page
    rows = json.loads((finished / "table.json").read_text())["rows"]
    (tmp_path / "table.json").write_text(json.dumps(rows))  # as earlier versions wrote it
    with pytest.raises(ValueError, match=r"of an older version; jcas benchmark --out .* --tables renews it"):
        build_benchmark_report(tmp_path, tmp_path / "none.html")
    (tmp_path / "table.json").unlink()
    with pytest.raises(ValueError, match="not a benchmark folder"):
        build_benchmark_report(tmp_path, tmp_path / "none.html")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--noise", "elipse"), "unknown noise 'elipse'"),
        (("--noise", "ellipse,symmetric"), "unknown noise 'ellipse,symmetric', repeat --noise for each"),
        (("--noise", "symmetric:rate"), "expected key=value after the colon, got 'rate'"),
        (("--noise", "symmetric:rate=2"), "rate"),
        (("--noise", "sfda"), "sfda:RUN"),
        (("--noise", "none", "--methods", "jcsa"), "did you mean 'jcas'"),
        (("--noise", NOISE, "--methods", "gce", "--encoder", "resnet102"), "did you mean 'resnet101'"),
        (("--noise", "none", "--methods", ","), "--methods names no method"),
        (("--noise", "none", "--runner", "slurm"), "unknown runner 'slurm'"),
        (("--noise", "none", "--runner", "inline", "--jobs", 2), "--jobs 2 belongs to --runner local or ray"),
        (("--noise", "none", "--runner", "ray", "--address", "auto", "--jobs", 2), "--jobs 2: the cluster at"),
        (("--noise", "none", "--selection", "best"), "selection"),
        ((), "which noise?"),
    ],
)
def test_mistakes_are_one_line(truth, tmp_path, capsys, arguments, complaint):
    out = tmp_path / "out"
    code, err = jcas("benchmark", truth, *arguments, "--out", out, capsys=capsys)
    assert code == 2 and complaint in err and err.strip().count("\n") == 0
    assert not [path for path in out.glob("*") if path.name != ".lock"], "nothing was written"


@pytest.mark.parametrize(
    "flags",
    [("--noise", "none"), ("--methods", "jcas"), ("--seeds", 2), ("--epochs", 4), ("--jobs", 2), ("--runner", "ray")],
)
def test_tables_take_no_flags_of_the_training(finished, capsys, flags):
    before = (finished / "table.md").stat().st_mtime_ns
    code, err = jcas("benchmark", "--out", finished, "--tables", *flags, capsys=capsys)
    assert code == 2 and err.strip() == f"jcas: --tables only draws what is in --out, drop {flags[0]}"
    assert (finished / "table.md").stat().st_mtime_ns == before


def test_tables_need_a_benchmark(tmp_path, capsys):
    code, err = jcas("benchmark", "--out", tmp_path / "nothing", "--tables", capsys=capsys)
    assert code == 2 and "no benchmark here" in err


def test_a_refused_benchmark_leaves_no_folder(truth, tmp_path):
    with pytest.raises(ValueError, match="unknown noise"), exclusive(tmp_path / "new"):
        plan(tmp_path / "new", [truth], noises=["elipse"], methods=["baseline"])
    mine = tmp_path / "mine"
    mine.mkdir()
    with pytest.raises(ValueError, match="unknown noise"), exclusive(mine):
        plan(mine, [truth], noises=["elipse"], methods=["baseline"])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
