"""Do noisy validation labels know whether refining predictions by appearance pays? Their word beside the truth's.

    python benchmarks/refinement.py --work runs/grid --docs      # seconds for each finished cell of benchmarks/grid.py

For every finished cell of JCAS with flipped labels: the Jaccard index of its predictions, as they are and refined,
estimated from the noisy labels of validation images under the counted T_C, which is what a run decides by
(`ImageEvidence.weigh`; there at training size, here at that of the images), and measured on the test images.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from choice import PARTS, flipped_cells, options_of
from grid_documents import write_lines
from torch import Tensor
from torch.nn import functional

from jcas.core import confusion_counts, estimated_jaccard, refined_by_appearance
from jcas.data import open_dataset
from jcas.data.resize import resize_image
from jcas.inference import segment
from jcas.metrics import SegmentationScores
from jcas.run import Run, read_run, torch_threads

HEADER = [
    "| data | noise | estimated: as it is | refined | test: as it is | refined | seed | commit |",
    "|---|---|--:|--:|--:|--:|--:|---|",
]


def both(run: Run, image: Tensor) -> list[Tensor]:  # (channels, H, W) -> two of (1, H, W)
    """The classes of an image at its own size, as predicted and as refined."""
    prepared = (image if run.config.size is None else resize_image(image, run.config.size))[None]
    probs = segment(run.method, prepared, run.config)
    size = tuple(image.shape[1:])
    return [
        functional.interpolate(found, size=size, mode="bilinear", align_corners=False).argmax(1)
        for found in (probs, refined_by_appearance(prepared, probs))
    ]


@torch.inference_mode()
def compared(folder: Path) -> tuple[list[float], list[float]]:
    """Estimated from noisy validation labels, and measured on test images: as predicted, refined; in percent."""
    run = read_run(folder)
    known = json.loads((folder / "transition.json").read_text(encoding="utf-8"))
    transition = torch.tensor(known["class_transition"])
    dataset = open_dataset(run.config.data).with_validation(run.config.validation)
    counts = [torch.zeros_like(transition, dtype=torch.float64) for _ in range(2)]
    for record in dataset.split("val"):
        sample = dataset.load(record, clean=False)
        for total, believed in zip(counts, both(run, sample.image), strict=True):
            total += confusion_counts(believed, sample.noisy[None], len(total))[0]
    scores = [SegmentationScores(dataset.labels) for _ in range(2)]
    for record in dataset.split("test"):
        sample = dataset.load(record, clean=True)
        assert sample.clean is not None
        for score, believed in zip(scores, both(run, sample.image), strict=True):
            score.update(believed, sample.clean[None], [record.id])
    estimated = (100 * estimated_jaccard(torch.stack(counts), transition)).tolist()
    return estimated, [score.compute()["jac"]["mean"] for score in scores]


def main() -> None:
    options = options_of(__doc__)
    torch_threads(1)
    lines = list(HEADER)
    for part, noise, cells in flipped_cells(options.work, options.parts):
        if "jcas" in cells:
            seed, folder = min(cells["jcas"].items())
            estimated, measured = compared(folder)
            commit = json.loads((folder / "results.json").read_text(encoding="utf-8"))["commit"] or "–"
            shown = " | ".join(f"{value:.1f}" for value in (*estimated, *measured))
            lines.append(f"| {part} | `{noise}` | {shown} | {seed} | {commit} |")
            print(lines[-1], flush=True)
    if options.docs:
        order = {part: place for place, part in enumerate(PARTS)}
        write_lines("docs/METHOD.md", "refinement", lines, keys=2, order=lambda row: (order[row[0]], row[1]))


if __name__ == "__main__":
    main()
