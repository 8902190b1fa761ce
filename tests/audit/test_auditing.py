import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from PIL import Image

from jcas.audit import audit, read_audit, write_dataset
from jcas.audit.folds import train_folds
from jcas.audit.journal import Journal
from jcas.audit.regions import Issue
from jcas.cli import main
from jcas.config import make_config
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset as draw_scenes
from jcas.engine import train
from jcas.run import read_run
from jcas.schema import LabelSpace

CLASSES = ("background", "shaft", "wrist", "clasper")


def settings(data: Path, **changes):
    values = {"data": str(data), "method": "baseline", "epochs": 6, "batch_size": 4, "threads": 1, "watch": "none"}
    return make_config({**values, **changes})


@pytest.fixture(scope="module")
def noisy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    truth = draw_scenes(folder / "truth", count=24, size=(48, 64), seed=3, domain="source")
    parameters = {"rate": 0.3}
    return corrupt(truth, noise="symmetric", parameters=parameters, out=folder / "noisy", share=0.5, progress=False)


@pytest.fixture(scope="module")
def run(noisy, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "baseline"
    train(settings(noisy), out, progress=False)
    return out


@pytest.fixture(scope="module")
def audited(run, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("audits") / "first"
    audit(run, out, wrongness=True, confidence=0.6, progress=False)
    return out


def picture(folder: Path, layer: str, name: str) -> np.ndarray:
    return np.array(Image.open(folder / layer / f"{name}.png"))


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "images.jsonl").read_text("utf-8").splitlines()]


def issues(folder: Path) -> list[dict[str, str]]:
    with (folder / "issues.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def contents(folder: Path) -> dict[str, str]:
    """Hash of every file but audit.json, which carries the time."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "audit.json")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def test_audit_folder_keeps_its_contract(audited, noisy):
    about = read_audit(audited)
    dataset = open_dataset(noisy)
    expected = {record.id: record for record in dataset.records if record.split != "test"}
    assert about["format"] == "1" and about["classes"] == list(CLASSES) and about["images"] == len(expected)
    assert about["out_of_sample"] is False and about["folds"] is None and about["layout"] == "files"
    assert np.array(about["class_transition"]).sum(1) == pytest.approx(np.ones(4))
    for rate in (about["class_noise_rate"], about["affinity_noise_rate"]):
        assert 0 <= rate["low"] <= rate["value"] <= rate["high"] <= 1
    assert (audited / "confusion_flow.png").is_file() and not (audited / ".audit").exists()
    rows, found = lines(audited), issues(audited)
    assert {row["id"] for row in rows} == set(expected)
    assert [row["quality"] for row in rows] == sorted(row["quality"] for row in rows)
    assert about["kinds"] == {kind: sum(i["kind"] == kind for i in found) for kind in about["kinds"]}
    for row in rows:
        given, repaired = (picture(audited, layer, row["id"]) for layer in ("given", "repaired"))
        regions = picture(audited, "regions", row["id"])
        own = [issue for issue in found if issue["image"] == row["id"]]
        assert (given == dataset.load(expected[row["id"]], clean=False).noisy.numpy()).all()
        assert row["given_sha256"] == hashlib.sha256(given.astype(np.uint8).tobytes()).hexdigest()
        assert ((regions > 0) == (given != repaired)).all()
        assert set(np.unique(regions)) - {0} == {int(i["region"]) for i in own} - {0}
        assert row["issues"] == len(own) and list(row["per_class"]) == list(CLASSES)
        assert sum(table["pixels"] for table in row["per_class"].values()) == given.size
        trust, wrong = picture(audited, "weights", row["id"]), picture(audited, "wrongness", row["id"])
        assert np.abs(trust.astype(int) + wrong - 255).max() <= 1
        assert picture(audited, "images", row["id"]).shape[:2] == given.shape == (row["height"], row["width"])
    for issue in found:
        assert 0 <= float(issue["probability"]) <= 1
        assert issue["class_given"] in (*CLASSES, "") and int(issue["bottom"]) <= 48 and int(issue["right"]) <= 64


def test_noisy_images_rank_first_and_repair_brings_masks_closer_to_the_truth(audited, noisy):
    dataset = open_dataset(noisy)
    records = {record.id: record for record in dataset.records}
    wrong, before, after = [], 0, 0
    for row in lines(audited):
        clean = dataset.load(records[row["id"]], clean=True).clean.numpy()
        given, repaired = (picture(audited, layer, row["id"]) for layer in ("given", "repaired"))
        wrong.append((given != clean).any())
        before += (given != clean).sum()
        after += (repaired != clean).sum()
    assert all(wrong[: sum(wrong)])
    assert after < before


def killed_audit(run: Path, out: Path, *flags: str) -> Path:
    """An audit that was killed after some images; returns its journal."""
    command = [sys.executable, "-m", "jcas", "audit", str(run), "--out", str(out), "--no-progress", *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    journal = out / ".audit" / "journal.jsonl"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        if journal.is_file() and journal.read_bytes().count(b"\n") >= 2:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "audit.json").exists()
    return journal


def test_killed_audit_goes_on_to_the_same_bytes(run, audited, tmp_path):
    out = tmp_path / "again"
    with killed_audit(run, out, "--wrongness", "--confidence", "0.6").open("ab") as file:
        file.write(b'{"image": {"id": "half a li')
    torch.set_num_threads(1)
    audit(run, out, wrongness=True, confidence=0.6, progress=False)
    assert contents(out) == contents(audited)


def test_folds_judge_no_image_by_a_model_that_saw_its_group(run, noisy, tmp_path):
    about = audit(run, tmp_path / "blind", folds=2, progress=False)
    assert about["out_of_sample"] is True and about["folds"] == 2
    judged: list[str] = []
    for fold in (0, 1):
        dataset = open_dataset(tmp_path / "blind" / "folds" / str(fold) / "data")
        held_out = {record.group for record in dataset.split("test")}
        assert held_out and not held_out & {r.group for r in dataset.records if r.split != "test"}
        assert all(record.clean is None for record in dataset.records)
        judged += sorted(held_out)
    assert sorted(judged) == sorted({r.group for r in open_dataset(noisy).records if r.split != "test"})
    dataset = open_dataset(noisy)
    records = [record for record in dataset.records if record.split != "test"]
    models = train_folds(read_run(run), dataset, records, tmp_path / "blind" / "folds", folds=2, progress=False)
    assert {models.of(record).path.parent.name for record in records} == {"0", "1"}
    for record in records:
        judge = models.of(record)
        assert record.id in {held.id for held in open_dataset(Path(judge.config.data)).split("test")}


@pytest.mark.parametrize("use", ["repaired", "weighted"])
def test_written_dataset_closes_the_loop(audited, noisy, tmp_path, use):
    out = write_dataset(audited, tmp_path / use, use=use)
    source, written = open_dataset(noisy), open_dataset(out)
    assert written.labels == source.labels and written.truth_is_clean("test")
    places = {record.id: record for record in source.records}
    assert [r.split for r in written.records] == [places[r.id].split for r in written.records]
    for record in written.records:
        sample, before = written.load(record, clean=True), source.load(places[record.id], clean=True)
        assert torch.equal(sample.image, before.image) and torch.equal(sample.clean, before.clean)
        if record.split == "test" or use == "weighted":
            assert torch.equal(sample.noisy, before.noisy)
        else:
            assert (sample.noisy.numpy() == picture(audited, "repaired", record.id)).all()
        assert (sample.weight is not None) == (use == "weighted" and record.split != "test")
    result = train(settings(out, epochs=1), tmp_path / f"run_{use}", progress=False)
    assert result["jac"]["mean"] is not None


def test_volumes_come_back_as_volumes_that_lie_where_they_lay(run, noisy, tmp_path):
    source, data = open_dataset(noisy), tmp_path / "volumes"
    affine = np.diag([2.0, 3.0, 4.0, 1.0])
    affine[:3, 3] = (5, 6, 7)
    for folder in ("images", "masks"):
        (data / folder).mkdir(parents=True)
    grey = tmp_path / "grey"
    for number in range(3):
        samples = [source.load(r, clean=False) for r in source.records[3 * number : 3 * number + 3]]
        pixels = np.stack([(s.image.mean(0).numpy() * 255).astype(np.uint8) for s in samples], -1)
        nib.save(nib.Nifti1Image(pixels, affine), data / "images" / f"v{number}.nii.gz")
        labels = np.stack([s.noisy.numpy().astype(np.uint8) for s in samples], -1)
        nib.save(nib.Nifti1Image(labels, affine), data / "masks" / f"v{number}.nii.gz")
    (data / "dataset.yaml").write_text(f"classes: [{', '.join(CLASSES)}]\n")
    train(settings(data, epochs=1), grey, progress=False)
    about = audit(grey, tmp_path / "audit", confidence=0.5, splits=("train", "val", "test"), progress=False)
    assert about["layout"] == "nifti" and about["images"] == 9
    for number in range(3):
        volume = nib.load(tmp_path / "audit" / "repaired_volumes" / f"v{number}.nii.gz")
        assert (volume.affine == affine).all() and volume.shape == (48, 64, 3)
        stacked = np.stack([picture(tmp_path / "audit", "repaired", f"v{number}#{k:03d}") for k in range(3)], -1)
        assert (np.asarray(volume.dataobj) == stacked).all()
    for use in ("repaired", "weighted"):
        again = open_dataset(write_dataset(tmp_path / "audit", tmp_path / use, use=use))
        assert len(again.records) == 9 and again.load(again.records[0], clean=False).noisy.shape == (48, 64)


def test_trusted_masks_are_never_changed(run, noisy, tmp_path):
    data = tmp_path / "trusted"
    shutil.copytree(noisy, data)
    name = open_dataset(noisy).split("train")[0].id
    with (data / "dataset.yaml").open("a") as file:
        file.write(f"trusted: ['{name}']\n")
    audit(run, tmp_path / "audit", data=data, confidence=0.5, progress=False)
    row = next(row for row in lines(tmp_path / "audit") if row["id"] == name)
    assert row["expected_wrong"] == 0 and row["quality"] == 1
    assert (picture(tmp_path / "audit", "given", name) == picture(tmp_path / "audit", "repaired", name)).all()


def command(*words: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "jcas", "audit", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


def test_unknown_run_is_one_line_and_exit_code_2(tmp_path):
    code, message = command(str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert code == 2 and len(message.splitlines()) == 1 and "nothing" in message
    assert not (tmp_path / "out").exists()


def test_missing_image_is_named_and_the_audit_goes_on_when_it_is_back(run, noisy, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(noisy, data)
    lost = open_dataset(data).split("val")[-1].image
    audit_of_all = {record.id for record in open_dataset(data).records if record.split != "test"}
    content = lost.read_bytes()
    lost.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=lost.name):
        audit(run, out, data=data, progress=False)
    lost.write_bytes(content)
    audit(run, out, data=data, progress=False)
    assert {row["id"] for row in lines(out)} == audit_of_all


def test_finished_or_different_audit_is_not_overwritten(run, audited, tmp_path):
    before = contents(audited)
    with pytest.raises(ValueError, match="finished audit"):
        audit(run, audited, progress=False)
    assert contents(audited) == before
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("keep me")
    with pytest.raises(ValueError, match="is not an audit"):
        audit(run, tmp_path / "foreign", progress=False)
    half = tmp_path / "half" / ".audit"
    half.mkdir(parents=True)
    (half / "settings.json").write_text('{"confidence": 0.7}')
    with pytest.raises(ValueError, match="unfinished audit"):
        audit(run, half.parent, progress=False)


def test_image_or_dataset_that_is_gone_is_one_line_and_exit_code_2(run, noisy, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(noisy, data)
    lost = open_dataset(data).split("train")[0].image
    lost.unlink()
    code, message = command(str(run), "--data", str(data), "--out", str(tmp_path / "out"))
    assert code == 2 and len(message.splitlines()) == 1 and lost.stem in message
    code, message = command(str(run), "--data", str(tmp_path / "moved"), "--out", str(tmp_path / "out"))
    assert code == 2 and len(message.splitlines()) == 1 and "moved" in message
    assert not (tmp_path / "out").exists()


def change(mask: Path) -> None:
    labels = np.array(Image.open(mask))
    labels[0, 0] = 1 - min(labels[0, 0], 1)
    Image.fromarray(labels).save(mask)


@pytest.mark.parametrize("use", ["repaired", "weighted"])
def test_changed_mask_stops_the_dataset_and_loses_nothing(run, noisy, tmp_path, use):
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(noisy, data)
    audit(run, out, data=data, progress=False)
    before = contents(out)
    changed = open_dataset(data).split("train")[-1].noisy
    change(changed)
    flags = ("--out", str(out), "--dataset-out", str(tmp_path / use), "--use", use)
    code, message = command(str(run), *flags)
    assert code == 2 and "has changed since the audit" in message and changed.name in message
    assert message.count("jcas:") == 1 and not (tmp_path / use).exists() and contents(out) == before
    for folder in ("images", "masks", "clean"):
        (data / folder / changed.name).unlink()
    (data / "split.csv").unlink()
    with pytest.raises(ValueError, match="of the audit is missing"):
        write_dataset(out, tmp_path / use, use=use)


def test_mask_changed_before_an_audit_goes_on_is_named(run, noisy, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(noisy, data)
    journal = killed_audit(run, out, "--data", str(data))
    judged = [
        json.loads(line)["image"] for line in journal.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")
    ]
    change(Path(judged[0]["source_mask"]))
    code, message = command(str(run), "--data", str(data), "--out", str(out), "--no-progress")
    assert code == 2 and len(message.splitlines()) == 1 and "has changed since it was judged" in message
    assert len(journal.read_text().splitlines()) == len(judged)


def test_read_only_folder_is_one_line_and_exit_code_2(run, noisy, tmp_path_factory, monkeypatch, capsys):
    folder = tmp_path_factory.mktemp("readonly")
    for parent in (*run.parents[:3], noisy.parent, folder):
        parent.chmod(parent.stat().st_mode | 0o055)
    folder.chmod(0o555)
    monkeypatch.setattr(sys, "argv", ["jcas", "audit", str(run), "--out", str(folder / "out")])
    was_root = os.geteuid() == 0  # root may write anywhere: be nobody for a moment
    if was_root:
        os.seteuid(65534)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o755)
    message = capsys.readouterr().err.strip()
    assert ended.value.code == 2 and len(message.splitlines()) == 1 and str(folder / "out") in message


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"confidence": 0.3}, "confidence"),
        ({"splits": ("dev",)}, "dev"),
        ({"folds": 1}, "folds"),
        ({"matrix": "guessed"}, "guessed"),
    ],
)
def test_wrong_option_is_named(run, tmp_path, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        audit(run, tmp_path / "out", progress=False, **options)


def test_other_classes_are_refused(run, noisy, tmp_path):
    shutil.copytree(noisy, tmp_path / "data")
    text = (tmp_path / "data" / "dataset.yaml").read_text().replace("wrist", "elbow")
    (tmp_path / "data" / "dataset.yaml").write_text(text)
    with pytest.raises(ValueError, match="elbow"):
        audit(run, tmp_path / "out", data=tmp_path / "data", progress=False)


PEAK = """
import resource, sys
from pathlib import Path
from jcas.audit import audit
audit(Path(sys.argv[1]), Path(sys.argv[3]), data=Path(sys.argv[2]), progress=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_number_of_images(run, tmp_path):
    """32 more images of 384 x 384 have 75 MB of probabilities; the peak grows by a small part of that."""
    few = draw_scenes(
        tmp_path / "few", count=8, size=(384, 384), seed=5, domain="source", val_fraction=0, test_fraction=0
    )
    many = shutil.copytree(few, tmp_path / "many")
    (many / "split.csv").unlink()
    for path in [*many.rglob("*.png")]:
        for number in range(4):
            shutil.copyfile(path, path.with_name(f"{path.stem}_{number}.png"))
    peaks = []
    for data in (few, many):
        command = [sys.executable, "-c", PEAK, str(run), str(data), str(tmp_path / f"audit_{data.name}")]
        finished = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(int(finished.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 35, peaks


def test_thousands_of_issues_stay_on_the_disk(tmp_path):
    labels = LabelSpace(("background", "shaft"))
    journal = Journal(tmp_path / "audit", {}, print_bytes=4)
    journal.open()
    issues = [Issue(n, "wrong_class", 0, 1, 0.95, (n, 0, n + 1, 1), 1) for n in range(1, 3001)]
    tracemalloc.start()
    for number in range(20):
        image = {"id": f"{number:02d}", "quality": -number, "expected_wrong": 1.0, "given_sha256": ""}
        journal.add(image, np.eye(2), issues, np.zeros(4, dtype=np.uint8), seconds=0.1)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2_000_000  # 60,000 issues take some 30 MB
    again = Journal(tmp_path / "audit", {}, print_bytes=4)
    again.open()
    assert again.kinds == {"wrong_class": 60_000} and again.issues(again.lines[7]) == issues
    again.finish({}, {"03": [Issue(0, "empty_mask", -1, -1, 1.0, (0, 0, 1, 1), 0)]}, labels)
    with (tmp_path / "audit" / "issues.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60_001 and rows[0]["image"] == "19"
    assert [row["kind"] for row in rows if row["image"] == "03"][-1] == "empty_mask"
