"""The audit itself: image after image, memory for one image at a time."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from jcas.audit.folds import FoldModels, train_folds
from jcas.audit.journal import Journal, mask_hash, read_layer, write_regions
from jcas.audit.posterior import (
    Conflicts,
    Judgement,
    Labels,
    Matrix,
    Probabilities,
    count_confident,
    judge,
    transition_from,
)
from jcas.audit.regions import Issue, find_regions
from jcas.audit.rules import (
    Place,
    absent_classes,
    check_mask,
    duplicate_conflicts,
    fingerprint,
    fingerprint_size,
    mismatched_pairs,
)
from jcas.audit.summary import draw_confusions, summarise
from jcas.data import SPLITS, Dataset, Record, files, open_dataset
from jcas.data.derived import file_suffix
from jcas.inference import probabilities
from jcas.run import Run, read_run, source_commit, write_json
from jcas.version import __version__

FORMAT = "1"
COUNTED_IMAGES = 200
"""Images, evenly spread, that tell how noisy the labels are before the first is judged."""


def audit(
    run: Path,
    out: Path,
    *,
    data: Path | None = None,
    folds: int | None = None,
    confidence: float = 0.9,
    splits: Sequence[str] = ("train", "val"),
    wrongness: bool = False,
    matrix: Literal["contested", "learned"] = "contested",
    progress: bool = True,
) -> dict[str, Any]:
    """Judge every mask of a dataset and fill the audit folder; returns the content of ``audit.json``.

    Started again after a kill it goes on where it stopped and ends with the same bytes.

    Args:
        run: folder of a trained run.
        out: audit folder; new, or that of the same audit unfinished.
        data: dataset to audit; the one of the run by default.
        folds: train that many models like the run's, each blind to the images that it judges. None: the run judges,
            though it has seen the labels.
        confidence: least probability of a label that replaces the given one.
        splits: which images.
        wrongness: also write maps of the wrong-label probability.
        matrix: noise that a label is weighed with: the rate at contested pixels, or the matrix of the run (counted
            where the run has none). The first measured better on real data.
        progress: show a progress bar.
    """
    if matrix not in ("contested", "learned"):
        raise ValueError(f"matrix must be contested or learned, got {matrix!r}")
    if not 0.5 <= confidence <= 1:
        raise ValueError(f"confidence must lie in [0.5, 1], got {confidence}")
    if not splits or set(splits) - set(SPLITS):
        raise ValueError(f"splits must be some of {', '.join(SPLITS)}, got {', '.join(splits) or 'none'}")
    trained = read_run(run)
    dataset = open_dataset(data or Path(trained.config.data))
    trained.expect_same_kind(dataset)
    records = [r for r in dataset.records if r.split in splits and r.noisy is not None]
    if not records:
        raise ValueError(f"{dataset.root}: no labelled image in the splits {', '.join(splits)}")
    settings = {
        "run": str(run),
        "model": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
        "data": str(dataset.root),
        "splits": list(splits),
        "folds": folds,
        "confidence": confidence,
        "wrongness": wrongness,
        "matrix": matrix,
    }
    classes = dataset.labels.num_classes
    journal = Journal(out, settings, print_bytes=fingerprint_size(classes))
    journal.open()
    models = FoldModels({}, trained)
    if folds is not None:
        models = train_folds(trained, dataset, records, out / "folds", folds=folds, progress=progress)
    auditor = _Auditor(dataset, models, out, confidence=confidence, wrongness=wrongness)
    auditor.transition = _transition(auditor, records, journal.work / "transition.json", matrix=matrix)
    done = journal.done()
    _expect_same_masks(dataset, records, done)
    remaining = [record for record in records if record.id not in done]
    for record in _shown(remaining, f"auditing {dataset.name}", progress=progress):
        clock = time.perf_counter()
        found = auditor.judge(record)
        journal.add(*found, seconds=time.perf_counter() - clock)
    return _finish(journal, dataset, records, settings, trained, auditor.transition)


class _Auditor:
    """Judges one image and writes its pictures."""

    def __init__(self, dataset: Dataset, models: FoldModels, out: Path, *, confidence: float, wrongness: bool) -> None:
        self.dataset = dataset
        self.models = models
        self.out = out
        self.confidence = confidence
        self.wrongness = wrongness
        self.transition: Matrix = np.eye(dataset.labels.num_classes)
        if wrongness:
            (out / "wrongness").mkdir(exist_ok=True)

    def load(self, record: Record) -> tuple[NDArray[np.float32], Labels, Probabilities]:
        """Image, given mask and prediction."""
        sample = self.dataset.load(record, clean=False)
        model = self.models.of(record)
        probs = probabilities(model.method, sample.image, model.config).numpy()
        return sample.image.numpy(), sample.noisy.numpy().astype(np.uint8), probs

    def judge(self, record: Record) -> tuple[dict[str, Any], Matrix, list[Issue], NDArray[np.uint8]]:
        """All that the journal keeps of one image."""
        image, given, probs = self.load(record)
        judged = judge(probs, given, self.transition)
        confidence = self.confidence
        if record.id in self.dataset.trusted:
            judged, confidence = _believed(judged, given), 2.0
        repaired, certainty = judged.repaired(given, confidence=confidence)
        regions, issues = find_regions(given, repaired, certainty)
        issues += check_mask(given, probs, judged.wrongness)
        name = f"{record.id}.png"
        files.write_image(self.out / "images" / name, image)
        files.write_mask(self.out / "given" / name, given)
        files.write_mask(self.out / "predicted" / name, probs.argmax(0).astype(np.uint8))
        files.write_mask(self.out / "repaired" / name, repaired)
        write_regions(self.out / "regions" / name, regions)
        files.write_image(self.out / "weights" / name, np.where(given == 255, 0, 1 - judged.wrongness))
        if self.wrongness:
            files.write_image(self.out / "wrongness" / name, judged.wrongness)
        assert record.noisy is not None
        entry = {
            "id": record.id,
            "image_file": str(record.image),
            "split": record.split,
            "group": record.group,
            "height": given.shape[0],
            "width": given.shape[1],
            "quality": judged.quality,
            "expected_wrong": judged.expected_wrong,
            "per_class": _per_class(judged.joint, self.dataset.labels.names),
            "issues": len(issues),
            "given_sha256": mask_hash(given),
            "source_mask": str(record.noisy),
            "slice_index": record.slice_index,
        }
        return entry, judged.joint, issues, fingerprint(image, given, probs)


def _believed(judged: Judgement, given: Labels) -> Judgement:
    """The judgement of a mask that the dataset vouches for: nothing in it is wrong."""
    counts = judged.joint.sum(0)
    return Judgement(judged.posterior, np.zeros_like(judged.wrongness), np.diag(counts), 0.0)


def _per_class(joint: Matrix, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Expected Jaccard index, expected wrong pixels (labelled so or missing) and given pixels of each class."""
    table = {}
    for c, name in enumerate(names):
        right, given, true = float(joint[c, c]), float(joint[:, c].sum()), float(joint[c].sum())
        union = given + true - right
        table[name] = {
            "quality": right / union if union > 0 else 1.0,
            "expected_wrong": union - right,
            "pixels": round(given),
        }
    return table


def _transition(auditor: _Auditor, records: Sequence[Record], path: Path, *, matrix: str) -> Matrix:
    """The noise that a pixel's label is weighed with; decided once and stored, so that a resumed audit uses it too."""
    if path.is_file():
        return np.array(json.loads(path.read_text(encoding="utf-8")))
    classes = auditor.dataset.labels.num_classes
    learned = [run.method.noise().detach().double().numpy() for run in auditor.models.all()]
    conflicts, counts = Conflicts(), np.zeros((classes, classes), dtype=np.int64)
    for place in np.unique(np.linspace(0, len(records) - 1, COUNTED_IMAGES).round().astype(int)):
        _, given, probs = auditor.load(records[place])
        conflicts = conflicts.plus(probs, given)
        counts += count_confident(probs, given)
    if matrix == "contested":
        transition = conflicts.transition(classes)
    elif any(np.allclose(noise, np.eye(classes)) for noise in learned):
        transition = transition_from(counts)  # a run believes its labels: count where it contradicts them
    else:
        transition = np.mean(learned, axis=0)
    write_json(path, transition.tolist())
    return transition


def _finish(
    journal: Journal,
    dataset: Dataset,
    records: Sequence[Record],
    settings: dict[str, Any],
    run: Run,
    assumed: Matrix,
) -> dict[str, Any]:
    labels, out = dataset.labels, journal.out
    more: dict[str, list[Issue]] = {}
    for name, issue in _between_images(journal, labels.num_classes):
        more.setdefault(name, []).append(issue)
    kinds = journal.kinds + Counter(issue.kind for found in more.values() for issue in found)
    joints = np.array([line["joint"] for line in journal.lines])
    volumes = sorted({r.noisy for r in records if r.slice_index is not None and r.noisy is not None})
    for source in volumes:
        _write_volume(out, source, [r for r in records if r.noisy == source])
    draw_confusions(joints.sum(0), labels, out / "confusion_flow.png")
    about = {
        "format": FORMAT,
        "version": __version__,
        "commit": source_commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": settings["run"],
        "data": settings["data"],
        "dataset": dataset.name,
        "classes": list(labels.names),
        "colours": [list(colour) for colour in labels.colours],
        "ignore": labels.ignore,
        "out_of_sample": settings["folds"] is not None,
        "folds": settings["folds"],
        "confidence": settings["confidence"],
        "splits": settings["splits"],
        "images": len(joints),
        "seconds": round(sum(line["seconds"] for line in journal.lines), 1),
        "method": run.config.method,
        "seed": run.config.seed,
        "config": run.config.model_dump(mode="json"),
        "assumed_transition": assumed.tolist(),
        **summarise(joints),
        "expected_pixels": joints.sum(0).tolist(),
        "per_class": _per_class(joints.sum(0), labels.names),
        "kinds": dict(sorted(kinds.items())),
        "layout": "nifti" if volumes else "files",
    }
    journal.finish(about, more, labels)
    return about


def _between_images(journal: Journal, classes: int) -> Iterator[tuple[str, Issue]]:
    places = []
    for line in journal.lines:
        image, joint = line["image"], np.array(line["joint"])
        places.append(
            Place(
                id=image["id"],
                group=image["group"],
                slice_index=image["slice_index"],
                size=(image["height"], image["width"]),
                pixels=tuple(table["pixels"] for table in image["per_class"].values()),
                expected=tuple(joint.sum(1).tolist()),
                given_hash=image["given_sha256"],
            )
        )
    prints = journal.fingerprints()
    yield from absent_classes(places)
    yield from mismatched_pairs(places, prints, classes=classes)
    yield from duplicate_conflicts(places, prints)


def _write_volume(out: Path, source: Path, slices: Sequence[Record]) -> None:
    """The repaired slices of one volume as a volume that lies where its source lies."""
    folder = out / "repaired_volumes"
    folder.mkdir(exist_ok=True)
    ordered = sorted(slices, key=lambda record: record.slice_index or 0)
    volume = np.stack([read_layer(out, "repaired", record.id) for record in ordered], axis=-1)
    files.write_mask(folder / f"{files.stem(source)}{file_suffix(source)}", volume, like=source)


def _expect_same_masks(dataset: Dataset, records: Sequence[Record], judged: Mapping[str, str]) -> None:
    """A continued audit must not mix judgements of old and new masks."""
    for record in records:
        if record.id in judged:
            given = dataset.load(record, clean=False).noisy.numpy().astype(np.uint8)
            if mask_hash(given) != judged[record.id]:
                raise ValueError(f"{record.noisy}: has changed since it was judged; start again in another --out")


def _shown(records: Sequence[Record], description: str, *, progress: bool) -> Iterator[Record]:
    console = Console(stderr=True)
    yield from track(records, description=description, console=console, transient=True, disable=not progress)
