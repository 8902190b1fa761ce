import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lightning import Trainer
from PIL import Image

from jcas import run
from jcas.config import Config, make_config, read_values
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.engine import Engine, RunWriter, TrainingError, _deterministic, read_metrics, train
from jcas.gallery import write_gallery
from jcas.inference import segment
from jcas.methods.baseline import Baseline
from jcas.run import build_method, read_run


@pytest.fixture(scope="module")
def noisy(tmp_path_factory) -> Path:
    """24 scenes of 48 x 64 with symmetric noise: 14 train, 4 val, 6 test."""
    folder = tmp_path_factory.mktemp("data")
    truth = write_dataset(folder / "truth", count=24, size=(48, 64), seed=3, domain="source")
    return corrupt(truth, noise="symmetric", parameters={"rate": 0.3}, out=folder / "noisy", progress=False)


def small(data: Path, **changes) -> Config:
    values = {"data": str(data), "epochs": 4, "batch_size": 4, "threads": 1, "options": {"warmup": 2}, **changes}
    if values.get("method", "jcas") != "jcas" and "options" not in changes:
        values["options"] = {}
    return make_config(values)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_run(run).method.state_dict()


def without_seconds(run: Path) -> list[dict]:
    return [{key: value for key, value in line.items() if not key.endswith("seconds")} for line in read_metrics(run)]


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def test_kernels_are_asked_to_repeat_themselves_on_cuda_only(noisy, finished, monkeypatch):
    assert not torch.are_deterministic_algorithms_enabled(), "a run on the CPU changes nothing"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert _deterministic(small(noisy)) == _deterministic(small(noisy, device="gpu")) == "warn"
    assert _deterministic(small(noisy, device="cpu")) is None
    assert _deterministic(small(noisy, deterministic=False)) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _deterministic(small(noisy)) is None


@pytest.fixture(scope="module")
def finished(noisy, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "jcas"
    train(small(noisy), out, progress=False)
    return out


def test_run_folder_holds_what_others_rely_on(finished):
    results = json.loads((finished / "results.json").read_text())
    for key in (
        "method",
        "noise",
        "seed",
        "dataset",
        "classes",
        "selected_epoch",
        "seconds",
        "cpu_seconds",
        "peak_memory_mb",
    ):
        assert key in results, key
    assert results["method"] == "jcas" and results["noise"] == "symmetric" and results["truth"] == "clean"
    foreground = results["classes"][1:]
    for tables in (results, results["last_epoch"]):
        for metric in ("dice", "jac"):
            assert set(tables[metric]) == {*foreground, "mean"}
            present = [tables[metric][name] for name in foreground if tables[metric][name] is not None]
            assert math.isclose(tables[metric]["mean"], sum(present) / len(present))
            assert 0 <= tables[metric]["mean"] <= 100
    transition = json.loads((finished / "transition.json").read_text())
    assert all(math.isclose(sum(row), 1, abs_tol=1e-5) for row in transition["class_transition"])
    assert len(transition["affinity_transition"]) == 2 and math.isclose(sum(transition["prior"]), 1, abs_tol=1e-5)
    assert transition["true_class_transition"][0][0] == pytest.approx(0.7)
    assert len(list((finished / "masks").glob("*.png"))) == len(open_dataset(results_data(finished)).split("test"))
    assert read_values(finished / "config.yaml")["epochs"] == 4
    assert any((finished / "tensorboard").iterdir())


def test_the_gallery_shows_what_was_learned_from_before_what_was_tested(finished):
    entries = json.loads((finished / "gallery" / "gallery.json").read_text())
    assert [entry["split"] for entry in entries] == ["train"] * 6 + ["test"] * 6
    learned, tested = entries[:6], entries[6:]
    assert all(0 < entry["given_jac"] < 60 for entry in learned)  # three tenths of the pixels were flipped
    assert all(entry["given_jac"] == 100 for entry in tested)
    for entry in entries:
        truth, predicted = (
            torch.tensor(np.asarray(Image.open(finished / "gallery" / entry["files"][layer])))
            for layer in ("clean", "predicted")
        )
        classes = [c for c in (1, 2, 3) if (truth == c).any()]
        jac = [((truth == c) & (predicted == c)).sum() / ((truth == c) | (predicted == c)).sum() for c in classes]
        assert entry["jac"] == pytest.approx(100 * float(sum(jac)) / len(jac))


def test_a_method_is_shown_the_masks_as_they_are_stored(noisy, tmp_path):
    data = Path(shutil.copytree(noisy, tmp_path / "data"))
    records = open_dataset(data).split("train")
    first, second = (record.noisy for record in records[:2])
    Image.fromarray(np.zeros((48, 64), np.uint8)).save(first)  # nothing to see
    (data / "weights").mkdir()
    weight = np.full((48, 64), 255, np.uint8)
    weight[:, :30] = 0
    Image.fromarray(weight).save(data / "weights" / second.name)
    config = small(data, size=[32, 32]).resolved()
    dataset = open_dataset(data)
    method = build_method(config, num_classes=dataset.labels.num_classes, channels=3)
    engine = Engine(method, config, dataset)
    shown = list(engine._stored_masks())
    assert len(shown) == len(records) - 1 and {tuple(mask.shape) for mask in shown} == {(48, 64)}
    assert sum(bool((mask[:, :30] == 255).all()) for mask in shown) == 1
    train(config, tmp_path / "run", progress=False)
    assert read_run(tmp_path / "run").method.counts.roughness[1] == len(shown)  # and no batch of the first epoch


def test_masks_are_shown_without_a_look_at_the_images(noisy, tmp_path):
    data = Path(shutil.copytree(noisy, tmp_path / "data"))
    dataset = open_dataset(data)
    loaded = {record.id: dataset.load(record, clean=True) for record in dataset.split("train")}
    for path in (data / "images").iterdir():
        path.write_bytes(b"")
    for record in dataset.split("train"):
        for clean, expected in ((False, loaded[record.id].noisy), (True, loaded[record.id].clean)):
            assert torch.equal(dataset.stored_labels(record, clean=clean), expected)


def test_the_gallery_scores_nobody_by_labels_that_may_be_wrong_beside_true_ones(noisy, finished, tmp_path):
    data = Path(shutil.copytree(noisy, tmp_path / "data"))
    for record in open_dataset(data).records:
        if record.split != "test":
            record.clean.unlink()
    run, dataset = read_run(finished), open_dataset(data)
    masks = {record.id: torch.zeros(48, 64, dtype=torch.uint8) for record in dataset.split("test")}
    write_gallery(tmp_path / "out", run.method, dataset, "test", masks, run.config)
    entries = json.loads((tmp_path / "out" / "gallery" / "gallery.json").read_text())
    assert {("jac" in entry, entry["split"]) for entry in entries} == {(False, "train"), (True, "test")}


def results_data(run: Path) -> str:
    return yaml.safe_load((run / "config.yaml").read_text())["data"]


def test_same_seed_same_weights_and_another_seed_others(noisy, finished, tmp_path):
    train(small(noisy), tmp_path / "again", progress=False)
    assert same(weights(finished), weights(tmp_path / "again"))
    assert without_seconds(finished) == without_seconds(tmp_path / "again")
    train(small(noisy, seed=1), tmp_path / "other", progress=False)
    assert not same(weights(finished), weights(tmp_path / "other"))


def run_until(epoch: int, config: Config, out: Path, *, how: int) -> None:
    """Start a run in a process of its own and send it a signal once ``epoch`` epochs are written."""
    path = out.parent / "config.yaml"
    path.write_text(config.to_yaml())
    command = [sys.executable, "-m", "jcas", "train", "--config", str(path), "--out", str(out)]
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell do not
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=listens)
    deadline = time.monotonic() + 120
    while len(read_metrics(out)) < epoch and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    process_result[out] = (process.returncode, error)


process_result: dict[Path, tuple[int, str]] = {}


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_killed_run_resumes_to_the_very_same_weights_and_metrics(noisy, tmp_path, epoch):
    # dropout and augmentation draw random numbers; both stages of JCAS are crossed by the resumed part
    config = small(noisy, augmentation="strong", epochs=8, options={"warmup": 3})
    train(config, tmp_path / "straight", progress=False)
    run_until(epoch, config, tmp_path / "killed", how=signal.SIGKILL)
    done = len(read_metrics(tmp_path / "killed"))
    assert epoch <= done < 8, "the run finished before it could be killed"
    train(
        make_config(read_values(tmp_path / "killed" / "config.yaml")), tmp_path / "killed", resume=True, progress=False
    )
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "killed"))
    assert without_seconds(tmp_path / "straight") == without_seconds(tmp_path / "killed")


def test_a_continued_run_tells_when_it_began_and_every_commit_that_trained_it(noisy, tmp_path):
    before, after = (RunWriter(tmp_path, small(noisy)) for _ in range(2))
    before.started, before.commits, after.commits = "2026-01-02T03:04:05+00:00", ["abc1234"], ["def5678+"]
    after.load_state_dict(before.state_dict())
    assert after.started == "2026-01-02T03:04:05+00:00" and after.commit == "abc1234, def5678+"
    after.load_state_dict(before.state_dict())  # the same code twice is one commit
    assert after.commit == "abc1234, def5678+"
    nowhere = RunWriter(tmp_path, small(noisy))
    nowhere.commits = [None]  # outside a checkout
    assert nowhere.commit is None


def test_ctrl_c_ends_cleanly_with_a_checkpoint(noisy, tmp_path):
    config = small(noisy, epochs=40, watch="none")
    run_until(1, config, tmp_path / "run", how=signal.SIGINT)
    code, error = process_result[tmp_path / "run"]
    assert code == 130 and "Traceback" not in error and "--resume" in error
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()
    assert not (tmp_path / "run" / "results.json").exists()


def test_selection_never_sees_clean_labels(noisy, tmp_path):
    """Scrambling every true mask of train and val changes neither weights nor the selected epoch."""
    from jcas.data import read_mask, write_mask

    scrambled = tmp_path / "scrambled"
    shutil.copytree(noisy, scrambled)
    dataset = open_dataset(scrambled)
    for record in dataset.records:
        if record.split != "test":
            mask = read_mask(record.clean)
            record.clean.unlink()
            write_mask(record.clean, (mask + 1) % 4)
    results = [train(small(data), tmp_path / name, progress=False) for name, data in (("a", noisy), ("b", scrambled))]
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert results[0]["selected_epoch"] == results[1]["selected_epoch"]
    assert results[0]["jac"] == results[1]["jac"]


def test_upper_bound_trains_on_clean_labels(noisy, tmp_path):
    """... and noise on the training labels then does not matter."""
    method, labels = "baseline", "clean"
    first = train(small(noisy, method=method, labels=labels, selection="last"), tmp_path / "a", progress=False)
    assert first["upper_bound"] and first["selected_epoch"] == 4
    noisy_run = train(small(noisy, method=method, selection="last"), tmp_path / "b", progress=False)
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not noisy_run["upper_bound"]


@pytest.mark.parametrize("labels", ["noisy", "clean"])
def test_validation_has_labels_of_the_kind_that_is_trained_on(noisy, labels):
    """Also where methods learn from them; true ones to look at are another matter."""
    config, dataset = small(noisy, labels=labels, watch="val").resolved(), open_dataset(noisy)
    engine = Engine(build_method(config, num_classes=4, channels=3), config, dataset)
    engine.trainer = Trainer(logger=False, enable_checkpointing=False)
    batch = next(iter(engine.evaluation_batches("val")))
    assert batch.clean is not None
    assert torch.equal(batch.noisy, batch.clean) == (labels == "clean")


def test_a_validation_loss_that_cannot_be_told_names_epoch_and_images(noisy, tmp_path, monkeypatch):
    def fail(self, batch, probs):
        raise ValueError("probs holds nan")

    monkeypatch.setattr(Baseline, "validation_loss", fail)
    with pytest.raises(TrainingError, match=r"^probs holds nan in epoch 1 for the validation images \w+"):
        train(small(noisy, method="baseline"), tmp_path / "run", progress=False)


def test_no_epoch_before_that_of_the_least_noisy_validation_loss_is_selected(finished):
    losses = [line["val"]["loss"] for line in read_metrics(finished)]
    warmup = yaml.safe_load((finished / "config.yaml").read_text())["options"]["warmup"]
    results = json.loads((finished / "results.json").read_text())
    assert results["selected_epoch"] >= losses.index(min(losses[warmup:])) + 1 > warmup >= 1


def test_of_epochs_that_validation_cannot_tell_apart_the_latest_is_kept(noisy, tmp_path):
    config = small(noisy, method="baseline").resolved()
    dataset = open_dataset(noisy)
    engine = Engine(build_method(config, num_classes=dataset.labels.num_classes, channels=3), config, dataset)
    writer = RunWriter(tmp_path, config)
    epochs = [  # validation losses of three batches
        ([2.0, 2.0, 2.0], True),  # the first
        ([1.0, 1.2, 0.8], True),  # better
        ([1.3, 1.4, 1.2], False),  # worse everywhere
        ([1.1, 1.1, 0.9], True),  # better here, worse there
        ([1.2, 1.3, 0.9], False),  # worse than the best, whatever the last one was
    ]
    for losses, chosen in epochs:
        engine.validation_losses = losses
        assert writer.chooses(engine) is chosen
    assert writer.least == [1.0, 1.2, 0.8]
    engine.yardstick = "another"  # what came before is no longer asked
    for losses, chosen in (([5.0, 5.0, 5.0], True), ([5.1, 5.2, 5.3], False), ([4.0, 4.0, 4.0], True)):
        engine.validation_losses = losses
        resumed = RunWriter(tmp_path, config)
        resumed.load_state_dict(writer.state_dict())
        assert writer.chooses(engine) is resumed.chooses(engine) is chosen
    config = small(noisy, method="baseline", selection="last").resolved()
    assert RunWriter(tmp_path, config).chooses(engine)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_learning_rates_are_honoured_for_encoder_heads_and_matrices(noisy, optimizer):
    config = small(
        noisy,
        optimizer=optimizer,
        learning_rate=1e-3,
        encoder_learning_rate=1e-4,
        matrix_learning_rate=5e-2,
        poly_power=1.0,
        options={"learned_matrices": True},
    ).resolved()
    dataset = open_dataset(noisy)
    method = build_method(config, num_classes=4, channels=3)

    class Steps:
        estimated_stepping_batches = 10

    engine = Engine(method, config, dataset)
    engine._trainer = Steps()
    made = engine.configure_optimizers()
    groups = {group["name"]: group for group in made["optimizer"].param_groups}
    assert {name: group["lr"] for name, group in groups.items()} == {"encoder": 1e-4, "heads": 1e-3, "matrices": 5e-2}
    assert groups["matrices"]["weight_decay"] == 0
    parameters = [id(p) for group in groups.values() for p in group["params"]]
    assert len(parameters) == len(set(parameters)) == sum(p.requires_grad for p in method.parameters())
    for _ in range(5):
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
    assert groups["matrices"]["lr"] == pytest.approx(2.5e-2) and groups["encoder"]["lr"] == pytest.approx(5e-5)


@pytest.mark.parametrize("method", ["baseline", "jcas"])
def test_a_run_that_diverges_names_the_images_and_keeps_the_checkpoint(noisy, tmp_path, method):
    """A real divergence: from the third epoch on the weights are poisoned, as an overflow would."""
    from lightning.pytorch.callbacks import Callback

    from jcas import engine

    class Poison(Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == 2:
                for parameter in pl_module.method.parameters():
                    parameter.data.mul_(float("inf"))

    make, ids = engine._make_trainer, {record.id for record in open_dataset(noisy).split("train")}
    engine._make_trainer = lambda config, out, callbacks, *more, **options: make(
        config, out, [*callbacks, Poison()], *more, **options
    )
    try:
        with pytest.raises(TrainingError, match=r"nan.* in epoch 3 for the images") as caught:
            train(small(noisy, method=method), tmp_path / "run", progress=False)
    finally:
        engine._make_trainer = make
    named = str(caught.value).split("for the images ")[1].split(", ")
    assert len(named) == 4 and set(named) <= ids
    assert len(read_metrics(tmp_path / "run")) == 2
    train(small(noisy, method=method), tmp_path / "run", resume=True, progress=False)
    assert len(read_metrics(tmp_path / "run")) == 4


def test_a_torn_line_of_metrics_does_not_stop_a_resume(finished, tmp_path):
    import shutil

    torn = Path(shutil.copytree(finished, tmp_path / "torn"))
    whole = (torn / "metrics.jsonl").read_text()
    (torn / "metrics.jsonl").write_text(whole + '{"epoch": 5, "tr')
    assert read_metrics(torn) == read_metrics(finished)


@pytest.mark.parametrize("content", [b"junk", b""])
def test_a_damaged_checkpoint_is_one_line(noisy, finished, tmp_path, content):
    import shutil

    damaged = Path(shutil.copytree(finished, tmp_path / "damaged"))
    (damaged / "checkpoints" / "last.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match=r"last\.ckpt: damaged checkpoint .*cannot resume"):
        train(small(noisy), damaged, resume=True, progress=False)


def test_a_checkpoint_of_another_shape_is_one_line(noisy, finished, tmp_path):
    other = Path(shutil.copytree(finished, tmp_path / "other"))
    path = other / "checkpoints" / "last.ckpt"
    stored = torch.load(path, weights_only=True)
    name = next(name for name in stored["state_dict"] if name.endswith("weight"))
    stored["state_dict"][name] = stored["state_dict"][name][:1]
    torch.save(stored, path)
    with pytest.raises(ValueError, match="another version of the method; cannot resume; remove the folder of the run"):
        train(small(noisy), other, resume=True, progress=False)


def test_the_commit_is_that_of_our_own_checkout_or_none(tmp_path, monkeypatch):
    found = run.source_commit()
    assert found is None or found.rstrip("+").isalnum()
    inside = tmp_path / "site-packages" / "jcas" / "run.py"
    inside.parent.mkdir(parents=True)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "of somebody else"], check=True)
    monkeypatch.setattr(run, "__file__", str(inside))
    assert run.source_commit() is None
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))  # no git there
    assert run.source_commit() is None


def test_a_full_disk_keeps_the_last_good_checkpoint(noisy, tmp_path):
    """A file size limit of the process makes the second checkpoint fail as a full disk does."""
    code = f"""
import resource, sys
from pathlib import Path
from jcas import engine
from jcas.config import make_config, read_values
real = engine._flush
def shrink(path):
    real(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
engine._flush = shrink
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.argv = ["jcas", "train", "--config", {str(tmp_path / "config.yaml")!r}, "--out", {str(tmp_path / "run")!r}]
from jcas.cli import main
main()
"""
    (tmp_path / "config.yaml").write_text(small(noisy, method="baseline").to_yaml())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "cannot save epoch 2" in done.stderr and "the last good checkpoint is kept" in done.stderr
    assert "Traceback" not in done.stderr
    stored = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert stored["epoch"] == 0
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    train(small(noisy, method="baseline"), tmp_path / "run", resume=True, progress=False)
    assert len(read_metrics(tmp_path / "run")) == 4


def test_no_checkpoint_names_a_best_epoch_whose_weights_are_not_kept_yet(noisy, tmp_path, monkeypatch):
    real, kept = os.replace, []

    def replace(source, target):
        if Path(target).name == "last.ckpt":  # a kill right after this must leave the weights that it names
            best = torch.load(Path(target).with_name("best.ckpt"), weights_only=True)
            kept.append((best["epoch"], torch.load(source, weights_only=True)["epoch"]))
        real(source, target)

    monkeypatch.setattr("jcas.engine.os.replace", replace)
    train(small(noisy, method="baseline", epochs=2, selection="last"), tmp_path / "run", progress=False)
    assert kept == [(0, 0), (1, 1)]


def test_images_smaller_than_networks_take_are_validated_and_tested(tmp_path):
    data = write_dataset(tmp_path / "data", count=12, size=(40, 48), seed=3)
    for folder in ("images", "masks"):
        for path in (data / folder).iterdir():
            with Image.open(path) as picture:
                picture.crop((0, 0, 24, 30)).save(path)
    results = train(small(data, method="jcas", epochs=2, crop=(48, 48), options={}), tmp_path / "run", progress=False)
    assert results is not None and math.isfinite(read_metrics(tmp_path / "run")[-1]["val"]["loss"])


@pytest.mark.parametrize(("size", "windows"), [((1100, 100), (512, 100)), ((1100, 1100), (512, 512))])
def test_windows_of_a_large_image_do_not_reach_beyond_it(noisy, size, windows):
    config = small(noisy, method="baseline")
    method = build_method(config.resolved(), num_classes=4, channels=3).eval()
    seen = []
    method.segment = lambda images: (
        seen.append(tuple(images.shape[2:])) or torch.ones(len(images), 4, *images.shape[2:])
    )
    assert segment(method, torch.rand(1, 3, *size), config).shape[2:] == size
    assert set(seen) == {windows}


def test_two_processes_match_one_on_the_same_global_batch(noisy, tmp_path):
    """Gloo, two processes of batch 2 against one of batch 4: losses and matrices agree."""
    runs = {}
    for name, devices, batch in (("one", 1, 4), ("two", 2, 2)):
        # 14 images = 3 full global batches and one of 2, which both divide evenly
        options = {"warmup": 1, "learned_matrices": True}  # counts would jump by whole pixels
        config = small(noisy, devices=devices, batch_size=batch, device="cpu", epochs=3, options=options)
        path = tmp_path / f"{name}.yaml"
        path.write_text(config.to_yaml())
        out = tmp_path / name
        command = [sys.executable, "-m", "jcas", "train", "--config", str(path), "--out", str(out)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr
        runs[name] = out
    one, two = (read_metrics(run) for run in runs.values())
    for left, right in zip(one, two, strict=True):
        assert left["val"]["loss"] == pytest.approx(right["val"]["loss"], rel=2e-3)
        assert left["train"]["loss"] == pytest.approx(right["train"]["loss"], rel=2e-3)
    transitions = [json.loads((run / "transition.json").read_text()) for run in runs.values()]
    for key in ("class_transition", "affinity_transition", "prior"):
        left, right = (torch.tensor(t[key]) for t in transitions)
        assert torch.allclose(left, right, atol=2e-3), (key, left, right)
    assert not torch.allclose(torch.tensor(transitions[0]["class_transition"])[0, 0], torch.tensor(0.7366), atol=1e-3)
