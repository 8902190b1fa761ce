"""What labels look like before anything is trained on them: drawn or flipped, ellipses, denied by colours.

    python benchmarks/kinds.py ../shared/data --work runs/grid --docs      # five minutes on one core; resumable

JCAS decides by these numbers what it does (docs/METHOD.md), so they should be far from its thresholds on every kind of
label. Masks as they are stored, on the data and noises of the quick look of ``benchmarks/grid.py``; colours as a
witness says that has learned the labels of images reduced to 128 x 128, 12 epochs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from command import jcas
from documents import commit, write_section
from parts import LOOKS
from prepare import prepare
from rich.progress import track

from jcas.data import Dataset, open_dataset
from jcas.data.resize import resize_image, resize_labels
from jcas.gallery import spread
from jcas.methods.noise_counts import NoiseCounts
from jcas.methods.witness import ColourWitness
from jcas.run import torch_threads

MASKS, EPOCHS, BATCH, RATE, SIDE = 128, 12, 4, 2e-3, 128
HEADER = """| data | labels | roughness | drawn | ellipses | a habit | colours know all classes | deny cores | heard |
|---|---|--:|---|--:|---|---|--:|---|"""


def kind_of(dataset: Dataset, *, seed: int = 0) -> dict[str, Any]:
    """What JCAS would find of the labels of a dataset's training images."""
    torch.manual_seed(seed)
    counts = NoiseCounts(dataset.labels.num_classes, tied=True)
    samples = [dataset.load(record, clean=False) for record in spread(dataset.split("train"), MASKS)]
    for sample in samples:
        counts.add_kind(sample.noisy[None], everywhere_the_same=True)
    shapes, ellipses = counts.shapes.tolist()
    found: dict[str, Any] = {
        "roughness": counts.mean_roughness,
        "drawn": counts.of_drawn_labels,
        "ellipses": ellipses / shapes if shapes else None,
        "habit": counts.of_ellipses,
    }
    if counts.of_drawn_labels and dataset.channels > 1:
        images = torch.stack([resize_image(sample.image, (SIDE, SIDE)) for sample in samples])
        labels = torch.stack([resize_labels(sample.noisy, (SIDE, SIDE)) for sample in samples])
        witness = taught(images, labels, dataset.labels.num_classes)
        found |= {"known": bool(witness.known.all()), "denied": float(witness.denied), "heard": witness.heard}
    return found


def taught(images: torch.Tensor, labels: torch.Tensor, num_classes: int) -> ColourWitness:
    """A witness that has learned these labels."""
    witness = ColourWitness(images.shape[1], num_classes)
    optimizer = torch.optim.AdamW(witness.parameters(), RATE)
    for _ in range(EPOCHS):
        witness.start_epoch()
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            witness.lesson(images[batch], labels[batch], labels[batch]).backward()
            optimizer.step()
        witness.end_epoch(listened=False)
    return witness


def line(data: str, noise: str, found: dict[str, Any]) -> str:
    """A row of the table."""
    share = "–" if found["ellipses"] is None else f"{found['ellipses']:.2f}"
    habit = "yes" if found["habit"] else "no"
    colours = ("–", "–", "–")
    if "known" in found:
        colours = "yes" if found["known"] else "no", f"{found['denied']:.2f}", "yes" if found["heard"] else "no"
    kind = "yes" if found["drawn"] else "no"
    return "| " + " | ".join((data, f"`{noise}`", f"{found['roughness']:.4f}", kind, share, habit, *colours)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder with acdc/, wbc/ and lidc4/")
    parser.add_argument("--work", type=Path, default=Path("runs/grid"))
    parser.add_argument("--docs", action="store_true", help="write into docs/METHOD.md")
    options = parser.parse_args()
    torch_threads(1)
    prepare(options.shared, options.work / "data")
    lines = HEADER.splitlines()
    sets = [(part, noise) for part, look in LOOKS.items() for noise in ("none", *look.noises)]
    for part, noise in track(sets, description="looking at labels"):
        folder = options.work / "data" / part
        if not folder.is_dir():
            folder = options.shared / part
        if noise != "none":
            name, _, given = noise.partition(":")
            settings = [flag for setting in given.split(",") if setting for flag in ("--set", setting)]
            truth, folder = folder, options.work / "kinds" / f"{part}__{noise.replace(':', '-')}"
            if not (folder / "noise.json").is_file():
                jcas("corrupt", str(truth), "--noise", name, *settings, "--out", str(folder), quiet=True)
        lines.append(line(LOOKS[part].title, noise, kind_of(open_dataset(folder))))
    table = "\n".join([*lines, "", f"Seed 0, commit {commit()}."])
    print(table)
    if options.docs:
        write_section("docs/METHOD.md", "kinds", table)


if __name__ == "__main__":
    main()
