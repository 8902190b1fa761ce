"""What noisy validation labels say about methods and variants, where labels were flipped: how settings are chosen.

    python benchmarks/choice.py --work runs/grid --docs      # seconds for each finished cell of benchmarks/grid.py

For every finished cell with flipped labels: the Jaccard index against the *true* classes of all validation images,
pooled and estimated from their noisy labels (`estimated_jaccard`), and the corrected cross-entropy of these labels. T_C
is the matrix by which they were flipped, the same for all: a counted one that is off by two hundredths moves such an
estimate by several points. No true label and no test image is looked at.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import torch
from grid import CONFIGS, LOOKS, NOISES, finished, write_lines

from jcas.benchmark.summary import table_order
from jcas.core import confusion_counts, corrected_cross_entropy, estimated_jaccard
from jcas.data import open_dataset
from jcas.inference import probabilities
from jcas.run import read_run, torch_threads

HEADER = [
    "| data | noise | method | pooled Jac estimated from noisy validation labels | corrected loss | seeds | commit |",
    "|---|---|---|--:|--:|--:|---|",
]
FLIPPED = ("symmetric", "asymmetric", "pair_flip")


@torch.inference_mode()
def on_noisy_validation(folder: Path) -> tuple[float, float]:
    """Estimated Jaccard index and corrected loss of a run."""
    run = read_run(folder)
    known = json.loads((folder / "transition.json").read_text(encoding="utf-8"))
    transition = torch.tensor(known["true_class_transition"])
    dataset = open_dataset(run.config.data).with_validation(run.config.validation)
    counts, losses = torch.zeros_like(transition, dtype=torch.float64), []
    for record in dataset.split("val"):
        sample = dataset.load(record, clean=False)
        probs, noisy = probabilities(run.method, sample.image, run.config)[None], sample.noisy[None]
        counts += confusion_counts(probs.argmax(1), noisy, len(counts))[0]
        losses.append(float(corrected_cross_entropy(probs, noisy, transition)))
    return 100 * float(estimated_jaccard(counts, transition)), mean(losses)


def all_finished(works: list[Path], part: str, noise: str) -> dict[str, dict[int, Path]]:
    """Finished cells of several work folders, by method and seed."""
    found: dict[str, dict[int, Path]] = {}
    for work in works:
        for method, folders in finished(work.resolve(), part, noise).items():
            found[method] = found.get(method, {}) | folders
    return found


def lines_of(works: list[Path], part: str, noise: str) -> list[str]:
    cells = all_finished(works, part, noise)
    lines = []
    for method in sorted(cells, key=table_order):
        seeds, folders = zip(*sorted(cells[method].items()), strict=True)
        found = [on_noisy_validation(folder) for folder in folders]
        jac, loss = (mean(values) for values in zip(*found, strict=True))
        results = [json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in folders]
        commits = ", ".join(sorted({result["commit"] or "–" for result in results}))
        shown = " ".join(map(str, seeds))
        lines.append(f"| {part} | `{noise}` | `{method}` | {jac:.1f} | {loss:.5f} | {shown} | {commits} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, nargs="+", default=[Path("runs/grid")], help="of benchmarks/grid.py")
    parts = (*CONFIGS, *LOOKS)
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--docs", action="store_true", help="write into docs/METHOD.md")
    options = parser.parse_args()
    torch_threads(1)
    lines = list(HEADER)
    for part in options.parts:
        noises = LOOKS[part].noises if part in LOOKS else NOISES.get(part, ())
        for noise in noises:
            if noise.startswith(FLIPPED):
                lines += lines_of(options.work, part, noise)
    if options.docs:
        order = [*NOISES, *LOOKS]
        write_lines(
            "docs/METHOD.md",
            "choice",
            lines,
            keys=3,
            order=lambda row: (order.index(row[0]), row[1], table_order(row[2].strip("`"))),
        )


if __name__ == "__main__":
    main()
