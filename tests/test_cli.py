import json
import re
import shlex
import shutil
import sys
import warnings
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
import typer
from PIL import Image

from jcas.cli import app, main
from jcas.config import Config
from jcas.data import read_mask
from jcas.data.synthetic import write_dataset
from jcas.methods import METHODS
from jcas.methods.baseline import Baseline
from jcas.noise import NOISES


def jcas(*arguments: object, capsys: pytest.CaptureFixture) -> tuple[int, str, str]:
    """Run the command in this process; returns exit code, stdout and stderr."""
    before, sys.argv = sys.argv, ["jcas", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = before
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    return write_dataset(folder / "truth", count=12, size=(40, 48), seed=1, domain="source")


@pytest.fixture(scope="module")
def run(truth, tmp_path_factory) -> Path:
    from jcas.config import make_config
    from jcas.engine import train

    out = tmp_path_factory.mktemp("cli_runs") / "baseline"
    values = {"data": str(truth), "method": "baseline", "epochs": 1, "batch_size": 4, "threads": 1}
    train(make_config(values), out, progress=False)
    return out


@pytest.fixture
def broken(truth, tmp_path) -> Path:
    """A copy of the dataset for a test to damage."""
    return Path(shutil.copytree(truth, tmp_path / "broken"))


COMMANDS = ["synth", "corrupt", "train", "evaluate", "predict", "report", "benchmark", "methods", "demo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command, capsys):
    code, out, _ = jcas(command, "--help", capsys=capsys)
    assert code == 0 and "Example" in out and f"jcas {command}" in out


def test_the_road_from_drawing_to_masks(tmp_path, capsys):
    (tmp_path / "small.yaml").write_text("epochs: 2\nbatch_size: 4\nthreads: 1\noptions: {warmup: 1}\n")
    extras = ("--overlays", "--probabilities")
    steps = [
        ("synth", tmp_path / "truth", "--count", 10, "--size", 40, 48, "--seed", 2),
        ("corrupt", tmp_path / "truth", "--noise", "pair_flip", "--set", "rate=0.2", "--out", tmp_path / "noisy"),
        ("train", tmp_path / "noisy", "--config", tmp_path / "small.yaml", "--out", tmp_path / "run"),
        ("evaluate", tmp_path / "run", "--surface", "--out", tmp_path / "scores.json"),
        ("predict", tmp_path / "run", tmp_path / "truth" / "images", "--out", tmp_path / "masks", *extras),
        ("report", tmp_path / "run"),
        ("corrupt", tmp_path / "truth", "--noise", "sfda", "--source", tmp_path / "run", "--out", tmp_path / "sfda"),
    ]
    for step in steps:
        code, _, err = jcas(*step, capsys=capsys)
        assert code == 0, (step, err)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["jac"] == results["jac"], "evaluate repeats what training measured"
    assert {"hd95", "assd", "nsd"} <= set(scores)
    masks = sorted((tmp_path / "masks").glob("*.png"))
    assert len(masks) == 10 and read_mask(masks[0]).shape == (40, 48)
    assert len(list((tmp_path / "masks" / "overlays").glob("*.png"))) == 10
    probs = np.load(next((tmp_path / "masks" / "probabilities").glob("*.npy")))
    assert probs.shape == (4, 40, 48) and np.allclose(probs.astype(np.float32).sum(0), 1, atol=5e-3)
    assert "<html" in (tmp_path / "run" / "report.html").read_text()[:200].lower()
    predicted = read_mask(tmp_path / "run" / "masks" / masks_of_test(tmp_path / "run")[0])
    assert predicted.max() < 4
    noise = json.loads((tmp_path / "sfda" / "noise.json").read_text())
    assert noise["noise"] == "sfda" and noise["class_noise_rate"] > 0


def masks_of_test(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "masks").iterdir())


def test_predict_writes_a_volume_with_the_same_affine(tmp_path, capsys):
    rng = np.random.default_rng(0)
    affine = np.diag([1.5, 1.5, 8.0, 1.0])
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for case in range(4):
            volume = rng.random((36, 44, 3)) * 900 if kind == "images" else rng.integers(0, 2, (36, 44, 3))
            nibabel.save(
                nibabel.Nifti1Image(volume.astype(np.int16), affine), tmp_path / "data" / kind / f"c{case}.nii.gz"
            )
    train = ("train", tmp_path / "data", "--method", "baseline", "--epochs", 1, "--threads", 1)
    code, _, err = jcas(*train, "--out", tmp_path / "run", capsys=capsys)
    assert code == 0, err
    source = tmp_path / "data" / "images" / "c1.nii.gz"
    code, _, err = jcas("predict", tmp_path / "run", source, "--out", tmp_path / "out", capsys=capsys)
    assert code == 0, err
    written = nibabel.load(tmp_path / "out" / "c1.nii.gz")
    assert written.shape == (36, 44, 3) and np.array_equal(written.affine, affine)
    volumes = list((tmp_path / "run" / "masks").glob("*.nii.gz"))
    assert volumes and nibabel.load(volumes[0]).shape == (36, 44, 3)


def test_predict_takes_any_size_and_large_images_in_windows(run, tmp_path, capsys):
    big = tmp_path / "big.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (1100, 600, 3), np.uint8)).save(big)
    code, _, err = jcas("predict", run, big, "--out", tmp_path / "out", capsys=capsys)
    assert code == 0, err
    assert read_mask(tmp_path / "out" / "big.png").shape == (1100, 600)


def expect_one_line(result: tuple[int, str, str], *words: str) -> None:
    code, _, err = result
    assert code == 2, err
    line = err.strip()
    assert line.startswith("jcas: ") and "\n" not in line and "Traceback" not in line, err
    for word in words:
        assert word in line, (word, line)


def train_on(folder: Path, out: Path, capsys, *more: object) -> tuple[int, str, str]:
    flags = ("--method", "baseline", "--epochs", 1, "--threads", 1, "--out", out, *more)
    return jcas("train", folder, *flags, capsys=capsys)


def test_predict_never_overwrites_an_image(run, broken, capsys):
    before = first(broken, "images").read_bytes()
    result = jcas("predict", run, broken / "images", "--out", broken / "images", capsys=capsys)
    expect_one_line(result, "would overwrite")
    assert first(broken, "images").read_bytes() == before


def test_predict_reads_every_image_before_it_writes(run, broken, tmp_path, capsys):
    last = sorted((broken / "images").iterdir())[-1]
    content = last.read_bytes()
    last.unlink()
    last.write_bytes(content[: len(content) // 2])
    expect_one_line(jcas("predict", run, broken / "images", "--out", tmp_path / "out", capsys=capsys), last.name)
    assert not (tmp_path / "out").exists()


def test_predict_takes_images_smaller_than_the_network_likes(run, tmp_path, capsys):
    Image.fromarray(np.full((9, 50, 3), 90, np.uint8)).save(tmp_path / "thin.png")
    code, _, err = jcas("predict", run, tmp_path / "thin.png", "--out", tmp_path / "out", capsys=capsys)
    assert code == 0, err
    assert read_mask(tmp_path / "out" / "thin.png").shape == (9, 50)


def test_fixed_intensity_holds_in_prediction_too(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(0, 4000, (40, 40)).astype(np.uint16)
            Image.fromarray(pixels if kind == "images" else (pixels > 2000).astype(np.uint8)).save(
                tmp_path / "data" / kind / f"{number}.png"
            )
    (tmp_path / "data" / "dataset.yaml").write_text("classes: [background, bright]\nintensity: [0, 16000]\n")
    flags = ("--method", "baseline", "--epochs", 1, "--threads", 1, "--out", tmp_path / "run")
    assert jcas("train", tmp_path / "data", *flags, capsys=capsys)[0] == 0
    images = tmp_path / "data" / "images"
    assert jcas("predict", tmp_path / "run", images, "--out", tmp_path / "out", capsys=capsys)[0] == 0
    for mask in (tmp_path / "run" / "masks").glob("*.png"):
        assert torch.equal(read_mask(mask), read_mask(tmp_path / "out" / mask.name))


def test_a_dataset_without_val_and_test_still_gives_a_model(broken, tmp_path, capsys):
    names = [path.stem for path in sorted((broken / "images").iterdir())]
    (broken / "split.csv").write_text("name,split\n" + "".join(f"{name},train\n" for name in names))
    code, _, err = train_on(broken, tmp_path / "run", capsys)
    assert code == 0 and "not evaluated" in err, err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["jac"]["mean"] is None and results["selection"] == "last"
    code, _, err = jcas("predict", tmp_path / "run", broken / "images", "--out", tmp_path / "masks", capsys=capsys)
    assert code == 0, err


def test_without_val_images_some_training_images_are_held_out_and_can_be_scored(tmp_path, capsys):
    data = write_dataset(tmp_path / "data", count=24, size=(40, 48), seed=1, domain="source")
    text = (data / "split.csv").read_text()
    (data / "split.csv").write_text(text.replace(",val", ",train"))
    code, _, err = train_on(data, tmp_path / "run", capsys)
    assert code == 0 and "has no val images" in err and "are held out (--validation)" in err, err
    assert "val" in json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert jcas("evaluate", tmp_path / "run", "--split", "val", capsys=capsys)[0] == 0
    code, _, err = train_on(data, tmp_path / "all", capsys, "--validation", 0)
    assert code == 0 and "held out" not in err, err
    assert "val" not in json.loads((tmp_path / "all" / "metrics.jsonl").read_text())


def test_true_matrices_of_pixels_and_pairs_are_kept(truth, tmp_path, capsys):
    corrupt = ("corrupt", truth, "--noise", "symmetric", "--set", "rate=0.4", "--out", tmp_path / "noisy")
    assert jcas(*corrupt, capsys=capsys)[0] == 0
    assert train_on(tmp_path / "noisy", tmp_path / "run", capsys)[0] == 0
    transition = json.loads((tmp_path / "run" / "transition.json").read_text())
    same = transition["true_affinity_transition"][1][1]
    assert same == pytest.approx(0.6**2 + 3 * (0.4 / 3) ** 2, abs=0.02)  # sum of squares of a row of T


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--size", 8, 8), "32"),
        (("--size", 0, 0), "size"),
        (("--crop", 0, 0), "crop"),
        (("--labels", "clean"), "clean"),
        (("--validation", 1), "validation: Input should be less than 1"),
        (("--validation", -0.5), "validation: Input should be greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_work_leave_no_folder(truth, tmp_path, capsys, flags, word):
    expect_one_line(train_on(truth, tmp_path / "run", capsys, *flags), word)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that must not be there")
def test_a_device_that_is_not_there(truth, run, tmp_path, capsys):
    expect_one_line(train_on(truth, tmp_path / "run", capsys, "--device", "gpu"), "gpu")
    assert not (tmp_path / "run").exists()
    expect_one_line(jcas("evaluate", run, "--device", "gpu", capsys=capsys), "gpu")


def test_too_little_memory_is_one_line_that_says_what_to_make_smaller(truth, tmp_path, capsys, monkeypatch):
    class Hungry(Baseline):
        def forward(self, batch):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB.\nGPU 0 has ...")

    monkeypatch.setitem(METHODS, "hungry", Hungry)
    result = train_on(truth, tmp_path / "run", capsys, "--method", "hungry", "--no-progress")
    expect_one_line(result, "memory", "--batch-size", "--size", "--crop")


@pytest.mark.parametrize("option", ["warmup=abc", "warmup=1.5", "intra=maybe", "volume_weight=x", "volume_weight=NaN"])
def test_options_of_the_wrong_type(truth, tmp_path, capsys, option):
    result = jcas("train", truth, "--method", "jcas", "--set", option, "--out", tmp_path / "run", capsys=capsys)
    expect_one_line(result, option.split("=")[0])
    assert not (tmp_path / "run").exists()


def commands() -> dict[str, typer.core.TyperCommand]:
    return typer.main.get_command(app).commands


@pytest.mark.parametrize("command", commands())
def test_examples_of_the_help_are_understood(command):
    epilog = re.sub(r"\[/?\w+\]", "", commands()[command].epilog)
    examples = [line.strip() for line in epilog.splitlines() if line.strip().startswith("jcas ")]
    assert examples
    for example in examples:
        words = shlex.split(example.split("     ")[0])  # a remark may stand behind the command
        commands()[words[1]].make_context(words[1], words[2:])  # parses, does not run


def test_help_of_train_tells_the_defaults():
    for parameter in commands()["train"].params:
        field = Config.model_fields.get({"compile_model": "compile"}.get(parameter.name, parameter.name))
        if field is None or field.default is None or parameter.name in ("data", "options"):
            continue
        value = field.default
        expected = str(value) if not isinstance(value, bool) else "yes" if value else "no"
        assert parameter.show_default == expected, parameter.name


def test_help_of_benchmark_names_every_noise_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    code, out, _ = jcas("benchmark", "--help", capsys=capsys)
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    about = re.search(r"--noise(.*?)--methods", out, re.DOTALL)[1]
    assert {*NOISES, "none"} <= set(re.findall(r"\w+", about)) and "repeat" in about and "sfda:RUN" in about
    assert "…" not in about


def test_help_of_corrupt_names_every_noise():
    option = next(parameter for parameter in commands()["corrupt"].params if parameter.name == "noise")
    assert option.help == f"NAME or NAME:key=value, one of {', '.join(NOISES)}."


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--noise", "matrix"), "needs --matrix FILE"),
        (("--noise", "ellipse", "--matrix", "T.json"), "--matrix belongs to --noise matrix"),
        (("--noise", "ellipse", "--source", "run"), "--source belongs to --noise sfda"),
        (("--noise", "sfda"), "needs --source RUN"),
        (("--noise", "sfda", "--source", "run", "--set", "a=1"), "has no parameters, drop --set a"),
        (("--noise", "ellipse", "--validation", "nobody"), "'nobody' is no group"),
        (("--noise", "symmetric:rate=0.3", "--set", "rate=0.5"), "says it already, drop --set rate"),
        (("--noise", "sfda:run", "--source", "other"), "says it already, drop --source"),
    ],
)
def test_corrupt_tells_which_flags_belong_together(broken, tmp_path, capsys, flags, message):
    result = jcas("corrupt", broken, *flags, "--out", tmp_path / "out", capsys=capsys)
    expect_one_line(result, message)
    assert not (tmp_path / "out").exists()


def test_corrupt_takes_noise_as_benchmark_does(truth, tmp_path, capsys):
    flags = (("--noise", "symmetric:rate=0.3"), ("--noise", "symmetric", "--set", "rate=0.3"))
    written = []
    for number, given in enumerate(flags):
        out = tmp_path / str(number)
        assert jcas("corrupt", truth, *given, "--out", out, capsys=capsys)[0] == 0
        written.append([path.read_bytes() for path in sorted((out / "masks").iterdir())])
    assert written[0] == written[1]
    broken_rate = jcas("corrupt", truth, "--noise", "symmetric:rate", "--out", tmp_path / "x", capsys=capsys)
    expect_one_line(broken_rate, "expected key=value after the colon")


def test_logs_hold_no_empty_lines_bars_or_warnings_of_others(run, truth, tmp_path, capsys):
    for arguments, expected in (
        (("corrupt", truth, "--noise", "ellipse", "--out", tmp_path / "noisy"), 2),
        (("evaluate", run, "--surface"), 1),
        (("predict", run, truth / "images", "--out", tmp_path / "masks"), 1),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code, out, err = jcas(*arguments, capsys=capsys)
        lines = err.splitlines()
        assert code == 0 and len(lines) == expected and all(lines), err
        assert not out.startswith("\n")


def test_flag_without_its_value_is_not_taken_for_unknown(tmp_path, capsys):
    code, _, err = jcas("synth", tmp_path / "out", "--size", 64, capsys=capsys)
    assert code == 2 and "requires 2 arguments" in err and "Did you mean" not in err


def test_corrupt_refuses_to_write_into_the_dataset(broken, capsys):
    out = broken / "masks" / "noisy"
    expect_one_line(jcas("corrupt", broken, "--noise", "ellipse", "--out", out, capsys=capsys), "inside the dataset")


def test_surface_scores_are_shown(run, capsys):
    code, out, err = jcas("evaluate", run, "--surface", capsys=capsys)
    assert code == 0, err
    assert "HD95" in out and "ASSD" in out and "within 1 pixels" in out and "missed" in out


def test_surface_scores_of_volumes_are_in_millimetres_within_the_slice(tmp_path, capsys):
    from jcas.config import make_config
    from jcas.engine import train

    names, found = ("fine", "coarse"), {}
    for name, voxel in zip(names, ([1, 1, 5, 1], [2, 2, 9, 1]), strict=True):
        rng = np.random.default_rng(0)
        for number in range(3):
            mask = np.zeros((32, 40, 3), np.uint8)
            mask[8:20, 5 + number : 25] = 1
            image = mask * 100 + rng.integers(0, 90, mask.shape)
            for folder, data in (("images", image.astype(np.int16)), ("masks", mask)):
                (tmp_path / name / folder).mkdir(parents=True, exist_ok=True)
                path = tmp_path / name / folder / f"case{number}.nii.gz"
                nibabel.save(nibabel.Nifti1Image(data, np.diag(voxel)), path)
    values = {"data": str(tmp_path / "fine"), "method": "baseline", "epochs": 4, "batch_size": 3, "threads": 1}
    train(make_config(values), tmp_path / "run", progress=False)
    for name in names:
        out = tmp_path / f"{name}.json"
        code, shown, err = jcas(
            "evaluate", tmp_path / "run", "--data", tmp_path / name, "--surface", "--out", out, capsys=capsys
        )
        assert code == 0 and "within 1 mm" in shown, err
        found[name] = json.loads(out.read_text())
    assert found["fine"]["distance_unit"] == "mm" and found["fine"]["nsd_tolerance"] == 1.0
    assert found["fine"]["assd"]["mean"] > 0, "a perfect prediction would show nothing"
    assert found["coarse"]["assd"]["mean"] == pytest.approx(2 * found["fine"]["assd"]["mean"])
    assert found["coarse"]["jac"] == found["fine"]["jac"]


def test_places_to_write_are_looked_at_before_the_work(run, truth, tmp_path, capsys):
    out = tmp_path / "audit"
    wrong = (
        (("--dataset-out", tmp_path / "new", "--use", "foo"), "use must be repaired or weighted, got 'foo'"),
        (("--dataset-out", truth), "not an empty folder"),
        (("--dataset-out", out), "is the folder of the audit"),
        (("--use", "weighted"), "--use weighted belongs to --dataset-out"),
    )
    for flags, message in wrong:
        expect_one_line(jcas("audit", run, "--out", out, *flags, capsys=capsys), message)
    result = jcas("evaluate", run, "--out", tmp_path, capsys=capsys)
    expect_one_line(result, f"--out {tmp_path} is a folder")
    assert not result[1] and not list(tmp_path.iterdir())


def test_class_that_never_occurs_is_told_once_and_ignored_labels_are_refused(broken, tmp_path, capsys):
    for path in (broken / "masks").iterdir():
        mask = np.array(Image.open(path))
        Image.fromarray(np.where(mask == 3, 255, mask).astype(np.uint8)).save(path)
    code, _, err = train_on(broken, tmp_path / "run", capsys)
    assert code == 0 and err.count("clasper never occurs in the training labels") == 1, err
    for path in (broken / "masks").iterdir():
        Image.fromarray(np.full((40, 48), 255, np.uint8)).save(path)
    expect_one_line(train_on(broken, tmp_path / "none", capsys), "every pixel of the training labels is ignored")
    assert not (tmp_path / "none").exists()


def test_missing_folder(tmp_path, capsys):
    expect_one_line(train_on(tmp_path / "nowhere", tmp_path / "run", capsys), "nowhere")
    assert not (tmp_path / "run").exists()


def first(folder: Path, kind: str) -> Path:
    return sorted((folder / kind).iterdir())[0]


def test_image_without_mask(broken, tmp_path, capsys):
    missing = first(broken, "masks")
    missing.unlink()
    expect_one_line(train_on(broken, tmp_path / "run", capsys), missing.stem)


def test_sizes_that_differ(broken, tmp_path, capsys):
    path = first(broken, "masks")
    Image.fromarray(np.zeros((7, 9), np.uint8)).save(path)
    expect_one_line(train_on(broken, tmp_path / "run", capsys), path.name, "7", "9", "40", "48")


def test_label_outside_the_classes(broken, tmp_path, capsys):
    path = first(broken, "masks")
    mask = np.array(Image.open(path))
    mask[3, 3] = 9
    Image.fromarray(mask.astype(np.uint8)).save(path)
    expect_one_line(train_on(broken, tmp_path / "run", capsys), path.name, "label 9")
    assert not (tmp_path / "run" / "results.json").exists()


def test_empty_class_list(broken, tmp_path, capsys):
    (broken / "dataset.yaml").write_text("classes: []\n")
    expect_one_line(train_on(broken, tmp_path / "run", capsys), "dataset.yaml", "classes")


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_unreadable_or_truncated_image(broken, tmp_path, capsys, content):
    path = first(broken, "images")
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    expect_one_line(train_on(broken, tmp_path / "run", capsys), path.name)


def test_wrong_channel_count(broken, run, tmp_path, capsys):
    path = first(broken, "images")
    Image.fromarray(np.zeros((40, 48), np.uint8)).save(path)
    expect_one_line(train_on(broken, tmp_path / "run", capsys), path.name, "channels")
    expect_one_line(jcas("predict", run, path, "--out", tmp_path / "out", capsys=capsys), path.name, "1 channels", "3")
    assert not (tmp_path / "out").exists()


def test_run_folder_of_another_version(run, tmp_path, capsys):
    from safetensors import safe_open
    from safetensors.torch import save_file

    old = Path(shutil.copytree(run, tmp_path / "old"))
    with safe_open(old / "model.safetensors", framework="pt") as stored:
        metadata = stored.metadata()
        state = {key: stored.get_tensor(key) for key in stored.keys()}
    save_file(state, old / "model.safetensors", metadata={**metadata, "format": "0"})
    expect_one_line(jcas("evaluate", old, capsys=capsys), "old", "another version", "'0'", "'1'")
    state.pop(next(iter(state)))
    save_file(state, old / "model.safetensors", metadata=metadata)
    expect_one_line(jcas("evaluate", old, capsys=capsys), "another version")
    (old / "model.safetensors").write_bytes(b"junk")
    expect_one_line(jcas("evaluate", old, capsys=capsys), "model.safetensors", "damaged")
    expect_one_line(jcas("evaluate", tmp_path / "none", capsys=capsys), "not a finished run folder")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--epoch", "3"), ("--epoch", "--epochs")),
        (("--method", "jcass"), ("jcass", "'jcas'")),
        (("--encoder", "resnet102"), ("resnet102", "'resnet101'")),
        (("--set", "warmupp=3"), ("warmupp", "'warmup'")),
        (("--set", "warmup"), ("NAME=VALUE", "warmup")),
        (("--selection", "best"), ("selection", "best")),
        (("--learning-rate", "-1"), ("learning_rate", "-1")),
        (("--config", "nowhere.yaml"), ("nowhere.yaml",)),
    ],
)
def test_unknown_flags_and_values_name_the_nearest(truth, tmp_path, capsys, flags, words):
    result = jcas("train", truth, "--out", tmp_path / "run", *flags, capsys=capsys)
    expect_one_line(result, *words)
    assert not (tmp_path / "run").exists()


def test_unknown_key_in_a_config_names_the_nearest(truth, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("epochs: 3\nlearning_rat: 0.1\n")
    result = jcas("train", truth, "--config", tmp_path / "c.yaml", "--out", tmp_path / "run", capsys=capsys)
    expect_one_line(result, "c.yaml", "'learning_rat'", "'learning_rate'")


def test_a_run_folder_is_never_overwritten(truth, run, tmp_path, capsys):
    before = (run / "results.json").read_bytes()
    expect_one_line(train_on(truth, run, capsys), "not empty", "--resume")
    assert (run / "results.json").read_bytes() == before
    expect_one_line(jcas("train", "--resume", "--out", tmp_path / "no", capsys=capsys), "nothing to resume")
    for flags in (("--epochs", 9), ("--set", "warmup=0"), ("--config", "x.yaml")):
        expect_one_line(jcas("train", "--resume", "--out", run, *flags, capsys=capsys), flags[0])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--noise", "simetric"), ("simetric", "symmetric")),
        (("--noise", "symmetric", "--set", "rate=1.5"), ("rate", "1.5")),
        (("--noise", "symmetric", "--set", "rat=0.5"), ("rat", "rate")),
        (("--noise", "sfda"), ("--source",)),
        (("--noise", "matrix", "--matrix", "none.json"), ("none.json",)),
    ],
)
def test_bad_noise_is_one_line_and_writes_nothing(truth, tmp_path, capsys, flags, words):
    expect_one_line(jcas("corrupt", truth, *flags, "--out", tmp_path / "out", capsys=capsys), *words)
    assert list(tmp_path.iterdir()) == []


def test_every_command_refuses_data_of_another_kind_with_the_same_line(run, broken, tmp_path, capsys):
    out = tmp_path / "out"
    uses = (
        ("evaluate", run, "--data", broken),
        ("audit", run, "--data", broken, "--out", out),
        ("corrupt", broken, "--noise", f"sfda:{run}", "--out", out),
    )

    def refused(*words: str) -> None:
        lines = [jcas(*arguments, capsys=capsys) for arguments in uses]
        expect_one_line(lines[0], *words)
        assert lines[1:] == lines[:1] * 2 and not out.exists()

    for path in (broken / "images").iterdir():
        Image.fromarray(np.zeros((40, 48), np.uint8)).save(path)
    refused("1 channels", f"{run} was trained on 3")
    (broken / "dataset.yaml").write_text("classes: [background, a, b, c]\n")
    refused("'a', 'b', 'c'", f"{run} knows", "shaft")


def test_version_is_printed(capsys):
    from jcas import __version__

    code, out, _ = jcas("--version", capsys=capsys)
    assert code == 0 and out.strip() == __version__


def test_reading_a_run_never_needs_the_network_or_imagenet(run):
    from jcas.run import read_run

    trained = read_run(run)
    assert trained.config.pretrained is False or trained.config.pretrained is None
    assert not trained.method.training
    assert torch.isfinite(trained.method.predict(torch.rand(1, 3, 40, 48))).all()
