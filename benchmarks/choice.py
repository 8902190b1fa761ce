"""What noisy validation labels say about methods and variants, where labels were flipped: how settings are chosen.

    python benchmarks/choice.py --work runs/grid --docs      # seconds for each finished cell of benchmarks/grid.py

For every finished cell with flipped labels: the Jaccard index against the *true* classes of all validation images,
pooled and estimated from their noisy labels (`clean_counts`), and the corrected cross-entropy of these labels. T_C
is the matrix by which they were flipped, the same for all: a counted one that is off by two hundredths moves such an
estimate by several points. No true label and no test image is looked at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import torch
from grid_documents import write_lines
from parts import CONFIGS, FLIPPED, LOOKS, NOISES, finished

from jcas.benchmark.summary import table_order
from jcas.core import clean_counts, confusion_counts, corrected_cross_entropy
from jcas.data import open_dataset
from jcas.inference import probabilities
from jcas.run import read_run, torch_threads

HEADER = [
    "| data | noise | method | pooled Jac estimated from noisy validation labels | corrected loss | seeds | commit |",
    "|---|---|---|--:|--:|--:|---|",
]
PARTS = [*CONFIGS, *LOOKS]


def mean_jaccard(counts: torch.Tensor, transition: torch.Tensor) -> float:
    """Percent, mean over the classes but background, of counts by believed class and noisy label."""
    true = clean_counts(counts, transition)
    both = true.diagonal()
    return 100 * float((both / (true.sum(0) + true.sum(1) - both))[1:].mean())


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
    return mean_jaccard(counts, transition), mean(losses)


def flipped_cells(works: list[Path], parts: list[str]) -> Iterator[tuple[str, str, dict[str, dict[int, Path]]]]:
    """Part, noise and the readable finished cells of several work folders, by method and seed, of flipped labels."""
    for part in parts:
        for noise in LOOKS[part].noises if part in LOOKS else NOISES.get(part, ()):
            if not noise.startswith(FLIPPED):
                continue
            found: dict[str, dict[int, Path]] = {}
            for work in works:
                for method, folders in finished(work.resolve(), part, noise).items():
                    found.setdefault(method, {}).update({s: path for s, path in folders.items() if readable(path)})
            yield part, noise, {method: folders for method, folders in found.items() if folders}


def readable(folder: Path) -> bool:
    """Whether this version reads a run; says so if not."""
    try:
        read_run(folder)
    except ValueError as error:
        print(f"left out: {error}", file=sys.stderr)
        return False
    return True


def lines_of(part: str, noise: str, cells: dict[str, dict[int, Path]]) -> list[str]:
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


def options_of(description: str | None) -> argparse.Namespace:
    """The command line of a look at finished cells."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, nargs="+", default=[Path("runs/grid")], help="of benchmarks/grid.py")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all that are there")
    parser.add_argument("--docs", action="store_true", help="write into docs/DEVELOPMENT.md")
    return parser.parse_args()


def main() -> None:
    options = options_of(__doc__)
    torch_threads(1)
    lines = list(HEADER)
    for part, noise, cells in flipped_cells(options.work, options.parts):
        lines += lines_of(part, noise, cells)
    if options.docs:
        write_lines(
            "docs/DEVELOPMENT.md",
            "choice",
            lines,
            keys=3,
            order=lambda row: (PARTS.index(row[0]), row[1], table_order(row[2].strip("`"))),
        )


if __name__ == "__main__":
    main()
