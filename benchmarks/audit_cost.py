"""What an audit costs: time and memory beside cleanlab's on 1,000 masks, and the memory of a whole audit.

Called by ``benchmarks/audit.py``; each side runs this file in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 256
CONFIDENCE = 0.9
LARGE = 512  # side of the images of a whole audit
DRAWN = 8  # of those images; the others are copies, which cost as much


def write_masks(path: Path, count: int) -> None:
    """Masks of four classes and their probabilities: discs, with a tenth of the labels moved or flipped."""
    rng = np.random.default_rng(0)
    building = path.with_name(f".{path.name}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    probs = np.lib.format.open_memmap(building / "probs.npy", "w+", np.float32, (count, 4, SIDE, SIDE))
    labels = np.lib.format.open_memmap(building / "labels.npy", "w+", np.uint8, (count, SIDE, SIDE))
    rows, columns = np.ogrid[:SIDE, :SIDE]
    for number in range(count):
        logits = rng.normal(0, 0.5, (4, SIDE, SIDE)).astype(np.float32)
        mask = np.zeros((SIDE, SIDE), np.uint8)
        logits[0] += 1.5
        for label in (1, 2, 3):
            centre, radius = rng.uniform(60, SIDE - 60, 2), rng.uniform(15, 40)
            distance = np.hypot(rows - centre[0], columns - centre[1])
            logits[label] += 6 / (1 + np.exp((distance - radius) / 2)) - 1
            moved = np.hypot(rows - centre[0] - rng.normal(0, 2), columns - centre[1])
            mask[moved < radius] = label
        flipped = rng.random((SIDE, SIDE)) < 0.05 * (number % 2)
        mask[flipped] = rng.integers(0, 4, int(flipped.sum()))
        logits = np.exp(3 * logits - (3 * logits).max(0))
        probs[number], labels[number] = logits / logits.sum(0), mask
    probs.flush()
    labels.flush()
    building.rename(path)


class PeakMemory(threading.Thread):
    """Highest anonymous memory of this process: file pages of a memory map are nobody's burden."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.running = True

    def run(self) -> None:
        """Look every 5 ms."""
        while self.running:
            text = Path("/proc/self/status").read_text()
            self.peak = max(self.peak, int(text.split("RssAnon:")[1].split()[0]) / 1024)
            time.sleep(0.005)


def measured_side(side: str, folder: Path) -> dict[str, float]:
    """Time and memory of one side; called in a process of its own."""
    if side == "jcas":
        from jcas.audit.posterior import Conflicts, judge
        from jcas.audit.regions import find_regions
        from jcas.audit.streaming import COUNTED_IMAGES
    else:
        from cleanlab.segmentation.filter import find_label_issues
        from cleanlab.segmentation.rank import get_label_quality_scores
    probs = np.load(folder / "probs.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy", mmap_mode="r")
    watch = PeakMemory()
    watch.start()
    time.sleep(0.05)
    before, clock, spent = watch.peak, time.perf_counter(), time.process_time()
    if side == "jcas":
        conflicts = Conflicts()
        for place in np.unique(np.linspace(0, len(labels) - 1, COUNTED_IMAGES).round().astype(int)):
            conflicts = conflicts.plus(np.array(probs[place]), np.array(labels[place]))
        transition, qualities = conflicts.transition(probs.shape[1]), []
        for number in range(len(labels)):
            given = np.array(labels[number])
            judged = judge(np.array(probs[number]), given, transition)
            find_regions(given, *judged.repaired(given, confidence=CONFIDENCE))
            qualities.append(judged.quality)
    else:
        whole = np.asarray(labels).astype(int)
        find_label_issues(whole, probs, n_jobs=1, verbose=False)
        get_label_quality_scores(whole, probs, verbose=False)
    seconds, processor = time.perf_counter() - clock, time.process_time() - spent
    watch.running = False
    watch.join()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "cpu_seconds": processor,
        "peak_mb": watch.peak,
        "added_mb": watch.peak - before,
        "peak_rss_mb": rss,
    }


def speed(work: Path, python: str, count: int) -> dict[str, Any]:
    folder = work / f"masks_{count}"
    if not folder.exists():
        write_masks(folder, count)
    rows: dict[str, Any] = {"masks": count, "side": SIDE, "classes": 4}
    for side, interpreter in (("jcas", sys.executable), ("cleanlab", python)):
        rows[side] = _in_own_process(interpreter, "--side", side, str(folder))
    rows["times_faster"] = rows["cleanlab"]["seconds"] / rows["jcas"]["seconds"]
    rows["memory_share"] = rows["jcas"]["peak_mb"] / rows["cleanlab"]["peak_mb"]
    return rows


def _in_own_process(interpreter: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run([interpreter, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def flipped_images(work: Path, count: int) -> tuple[Path, Path]:
    """A small run, and a dataset of large images whose labels are flipped: thousands of issues each."""
    from jcas.config import make_config
    from jcas.corrupt import corrupt
    from jcas.data.synthetic import write_dataset
    from jcas.engine import train

    run, data = work / "run", work / "data"
    shutil.rmtree(work, ignore_errors=True)
    small = write_dataset(work / "small", count=40, size=(64, 80), seed=3)
    train(make_config({"data": str(small), "method": "baseline", "epochs": 20, "watch": "none"}), run, progress=False)
    truth = write_dataset(work / "truth", count=DRAWN, size=(LARGE, LARGE), seed=5, val_fraction=0, test_fraction=0)
    corrupt(truth, noise="symmetric", parameters={"rate": 0.2}, out=data, progress=False)
    for name in ("split.csv", "noise.json"):  # they name the drawn images alone
        (data / name).unlink()
    shutil.rmtree(data / "clean")
    for path in [*(data / "images").iterdir(), *(data / "masks").iterdir()]:
        for number in range(1, count // DRAWN):
            shutil.copyfile(path, path.with_name(f"{path.stem}_{number}{path.suffix}"))
    return run, data


def measured_audit(run: Path, data: Path, out: Path) -> dict[str, float]:
    """Memory before and at the peak of a whole audit; called in a process of its own."""
    from jcas.audit import audit
    from jcas.data import open_dataset
    from jcas.inference import probabilities
    from jcas.run import read_run

    model, dataset = read_run(run), open_dataset(data)
    probabilities(model.method, dataset.load(dataset.records[0], clean=False).image, model.config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    clock = time.process_time()
    about = audit(run, out, data=data, confidence=0.6, splits=("train", "val", "test"), progress=False)
    return {
        "images": about["images"],
        "side": LARGE,
        "issues": sum(about["kinds"].values()),
        "model_mb": before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "cpu_seconds": time.process_time() - clock,
    }


def memory(work: Path, count: int) -> dict[str, Any]:
    run, data = flipped_images(work, count)
    shutil.rmtree(work / "audit", ignore_errors=True)
    return _in_own_process(sys.executable, "--audit", str(run), str(data), str(work / "audit"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", nargs=2)
    parser.add_argument("--audit", nargs=3, type=Path)
    options = parser.parse_args()
    measured = measured_side(options.side[0], Path(options.side[1])) if options.side else measured_audit(*options.audit)
    print(json.dumps(measured))
