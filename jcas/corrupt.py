"""Lay label noise over a dataset: a new folder with noisy masks to train on, and the originals for evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from jcas.core import affinity_noise_rate, class_noise_rate, from_counts, pair_counts
from jcas.data import files
from jcas.data.dataset import SPLITS, Dataset, FileReader, Record
from jcas.data.derived import file_name, file_suffix, link, write_description
from jcas.data.layout import open_dataset
from jcas.data.new_folder import expect_no_files, new_folder
from jcas.noise import NOISES, Noise, make_noise, rng_for
from jcas.schema import IGNORE, LabelSpace

CONTACT_SHEET_IMAGES = 6

Counts = NDArray[np.int64]  # (C, C), counts[m, n] = pixels of clean class m that are labelled n


def corrupt(
    dataset_dir: Path | str,
    *,
    noise: Noise | str,
    out: Path | str,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int = 1,
    splits: Sequence[str] = ("train", "val"),
    share: float = 1.0,
    validation: Sequence[str] = (),
    progress: bool = True,
) -> Path:
    """Write a copy of a dataset whose masks are noisy; return its folder.

    The copy holds ``images/`` (hard links where possible), ``masks/`` (noisy), ``clean/`` (the source's true labels:
    its own ``clean/``, or its masks where it has none), ``weights/`` if the source has them, ``split.csv``,
    ``dataset.yaml``, ``noise.json`` (see `measure`) and ``contact_sheet.png``. Noise is always laid over the true
    labels, never over older noise. Each image has its own generator, so neither the order nor the number of threads
    changes a byte.

    Args:
        dataset_dir: any dataset that `jcas.data.layout.open_dataset` can open.
        noise: a noise, or its name in `jcas.noise.NOISES`.
        out: a folder that does not exist or is empty.
        parameters: of the noise, when it is given by name.
        seed: of all random choices.
        workers: threads.
        splits: whose masks get noise. The others keep the true labels, and so do images that the dataset trusts.
        share: of the images in those splits that get noise, chosen by ``seed``.
        validation: groups of the training split that become the validation split of the copy.
        progress: show a progress bar.
    """
    out = Path(out)
    _check(out, splits, share, workers)
    dataset = open_dataset(dataset_dir, seed=seed).hold_out(validation)
    if isinstance(noise, str):
        noise = make_noise(noise, num_classes=dataset.labels.num_classes, parameters=parameters)
    elif parameters:
        raise ValueError(f"parameters belong to a noise given by name, got {noise} and {dict(parameters)}")
    if noise.num_classes != dataset.labels.num_classes:
        raise ValueError(f"noise of {noise.num_classes} classes for {dataset.name}, which has {dataset.labels.names}")
    eligible = [record for record in dataset.records if record.split in splits]
    if not eligible:
        raise ValueError(f"{dataset.root}: no image in the splits {', '.join(splits)}")
    chosen = choose([r.id for r in eligible if r.id not in dataset.trusted], share=share, seed=seed)

    with new_folder(out) as building:
        for folder in ("images", "masks", "clean"):
            (building / folder).mkdir()
        writer = _Writer(dataset, noise, building, chosen, seed)
        counts = _run(writer, workers=workers, progress=progress)
        write_description(dataset, building)
        measured = measure({record.id: counts[record.id] for record in eligible}, labels=dataset.labels)
        about = {
            "noise": next((name for name, kind in NOISES.items() if type(noise) is kind), type(noise).__name__),
            "parameters": noise.parameters(),
            "seed": seed,
            "dataset": dataset.name,
            "classes": list(dataset.labels.names),
            "splits": list(splits),
            "share": share,
            "corrupted_images": len(chosen),
            "true_transition": None if noise.transition is None else noise.transition.tolist(),
        }
        (building / "noise.json").write_text(json.dumps(about | measured, indent=2) + "\n", encoding="utf-8")
        title = f"{about['noise']} noise on {dataset.name}: {100 * measured['class_noise_rate']:.1f} % of pixels wrong"
        _contact_sheet(building, sorted(chosen) or [r.id for r in eligible], counts=counts, title=title)
    return out


def choose(ids: Iterable[str], *, share: float, seed: int) -> frozenset[str]:
    """The given share of the ids (rounded): those with the smallest draws, each from its own generator.

    >>> len(choose(["a", "b", "c", "d"], share=0.5, seed=0))
    2
    """
    ranked = sorted(ids, key=lambda i: (rng_for(seed, i, purpose="choose").random(), i))
    return frozenset(ranked[: round(share * len(ranked))])


def count(clean: NDArray[np.uint8], noisy: NDArray[np.uint8], *, num_classes: int) -> Counts:
    """How often each clean class carries each noisy label; ignored pixels are left out."""
    known = clean != IGNORE
    pairs = clean[known].astype(np.int64) * num_classes + noisy[known]
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def measure(counts: Mapping[str, Counts], *, labels: LabelSpace) -> dict[str, Any]:
    """What the noise did, from the counts of each image.

    ``class_noise_rate`` is the share of wrong pixels, ``affinity_noise_rate`` the share of ordered pixel pairs of one
    image whose same/different relation is wrong, averaged over images; ``affinity_noise_rate_pooled`` the same over
    pairs across all images, the rate that Theorem 1 speaks of.
    ``affinity_transition`` tells what became of same and of different pairs (T_A). Both are exact over all pairs (a
    pixel with itself included): the pairs of classes (m, m') labelled (n, n') number counts[m, n] * counts[m', n'],
    and that is what `jcas.core.affinity_noise_rate` sums in closed form when the counts themselves are its T and its
    prior.
    """
    total = np.sum(list(counts.values()), axis=0)
    if not total.sum():
        raise ValueError("no labelled pixel to put noise on: every pixel is ignored")
    clean, noisy = total.sum(1), total.sum(0)
    labelled = {name: matrix for name, matrix in counts.items() if matrix.sum()}
    return {
        "empirical_transition": from_counts(torch.from_numpy(total)).tolist(),
        "prior": (clean / clean.sum()).tolist(),
        "class_noise_rate": _rate(class_noise_rate, total),
        "affinity_transition": from_counts(pair_counts(torch.from_numpy(np.stack(list(labelled.values()))))).tolist(),
        "affinity_noise_rate": float(np.mean([_rate(affinity_noise_rate, m) for m in labelled.values()])),
        "affinity_noise_rate_pooled": _rate(affinity_noise_rate, total),
        "area_ratios": {name: float(noisy[c] / clean[c]) if clean[c] else None for c, name in enumerate(labels.names)},
        "images": len(counts),
        "pixels": int(total.sum()),
        "counts": total.tolist(),
        "image_class_noise_rates": {name: _rate(class_noise_rate, m) for name, m in sorted(labelled.items())},
    }


def _rate(rate: Any, counts: Counts) -> float:
    matrix = torch.from_numpy(counts)
    return float(rate(from_counts(matrix), matrix.sum(1).double()))


def _check(out: Path, splits: Sequence[str], share: float, workers: int) -> None:
    expect_no_files(out)
    if isinstance(splits, str) or not splits or set(splits) - set(SPLITS):
        raise ValueError(f"splits must be some of {', '.join(SPLITS)}, got {splits!r}")
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}")
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


@dataclass(frozen=True)
class _Writer:
    """Writes the files of one image, or of all slices of one volume."""

    dataset: Dataset
    noise: Noise
    root: Path
    chosen: frozenset[str]
    seed: int

    def __call__(self, records: list[Record]) -> dict[str, Counts]:
        first = records[0]
        name = file_name(first)
        plain = isinstance(self.dataset.reader, FileReader)  # other readers crop or resize: store what they give
        clean, noisy, counts = [], [], {}
        for record in records:
            sample = self.dataset.load(record, clean=True)
            assert sample.clean is not None
            truth = sample.clean.numpy().astype(np.uint8)
            label = truth
            if record.id in self.chosen:
                label = self.noise(truth, rng_for(self.seed, record.id), image=sample.image)
            clean.append(truth)
            noisy.append(label)
            counts[record.id] = count(truth, label, num_classes=self.noise.num_classes)
            if not plain:
                files.write_image(self.root / "images" / f"{name}.png", sample.image)
        if plain:
            link(first.image, self.root / "images" / f"{name}{file_suffix(first.image)}")
        if first.weight is not None:
            (self.root / "weights").mkdir(exist_ok=True)
            link(first.weight, self.root / "weights" / f"{name}{file_suffix(first.weight)}")
        for folder, masks in (("masks", noisy), ("clean", clean)):
            if first.slice_index is None:
                files.write_mask(self.root / folder / f"{name}.png", masks[0])
            else:
                target = self.root / folder / f"{name}{file_suffix(first.image)}"
                files.write_mask(target, np.stack(masks, axis=-1), like=first.clean or first.noisy or first.image)
        return counts


def _run(writer: _Writer, *, workers: int, progress: bool) -> dict[str, Counts]:
    jobs: dict[str, list[Record]] = {}
    for record in writer.dataset.records:
        jobs.setdefault(file_name(record), []).append(record)
    counts: dict[str, Counts] = {}
    with ThreadPoolExecutor(workers) as pool:
        try:
            done = pool.map(writer, jobs.values())
            console = Console(stderr=True)
            shown = track(
                done,
                f"corrupting {writer.dataset.name}",
                total=len(jobs),
                console=console,
                transient=True,
                disable=not progress or not console.is_terminal,
            )
            for result in shown:
                counts |= result
        except BaseException:
            pool.shutdown(cancel_futures=True)  # one bad file: do not work through the rest first
            raise
    return counts


def _contact_sheet(root: Path, ids: list[str], *, counts: Mapping[str, Counts], title: str) -> None:
    """A few images above their clean and their noisy labels."""
    dataset = open_dataset(root)
    records = {record.id: record for record in dataset.records}
    places = np.unique(np.linspace(0, len(ids) - 1, CONTACT_SHEET_IMAGES).round().astype(int))
    shown = [ids[place] for place in places]
    samples = [dataset.load(records[name], clean=True) for name in shown]
    aspect = float(np.mean([s.image.shape[1] / s.image.shape[2] for s in samples]))
    figure = Figure(figsize=(2.2 * len(shown) + 0.3, 6.6 * aspect + 1.0), dpi=130, layout="constrained")
    axes = figure.subplots(3, len(shown), squeeze=False)
    for column, (name, sample) in enumerate(zip(shown, samples, strict=True)):
        picture = sample.image.expand(3, -1, -1).permute(1, 2, 0).numpy()
        assert sample.clean is not None
        rows = (
            picture,
            _overlay(picture, sample.clean, dataset.labels),
            _overlay(picture, sample.noisy, dataset.labels),
        )
        for row, content in enumerate(rows):
            axes[row, column].imshow(content, interpolation="nearest")
            axes[row, column].set(xticks=[], yticks=[])
            axes[row, column].spines[:].set_visible(False)
        axes[0, column].set_title(name, fontsize=7)
        wrong = _rate(class_noise_rate, counts[name]) if counts[name].sum() else 0.0
        axes[2, column].set_xlabel(f"{100 * wrong:.1f} % wrong", fontsize=7)
    for row, heading in enumerate(("image", "clean", "noisy")):
        axes[row, 0].set_ylabel(heading, fontsize=9)
    patches = [
        Patch(color=(red / 255, green / 255, blue / 255), label=name)
        for name, (red, green, blue) in zip(dataset.labels.foreground, dataset.labels.colours[1:], strict=True)
    ]
    figure.suptitle(title, fontsize=10)
    figure.legend(handles=patches, loc="outside lower center", ncols=min(len(patches), 8), frameon=False, fontsize=8)
    figure.savefig(root / "contact_sheet.png")


def _overlay(picture: NDArray[np.float32], mask: torch.Tensor, labels: LabelSpace) -> NDArray[np.float32]:
    """The image in muted colours under the classes; ignored pixels are hatched white."""
    ids = mask.numpy()
    muted = 0.55 * picture + 0.25 * picture.mean(-1, keepdims=True)
    colours = np.array(labels.colours, np.float32) / 255
    foreground = (ids > 0) & (ids != IGNORE)
    muted[foreground] = 0.35 * muted[foreground] + 0.65 * colours[ids[foreground]]
    rows, columns = np.indices(ids.shape)
    muted[(ids == IGNORE) & ((rows + columns) % 4 == 0)] = 1.0
    return muted
