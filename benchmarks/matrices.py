"""Learned noise matrices against the true ones, as tables show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEADER = (
    "| noise | method | true diagonal of T_C | learned diagonal | relative L1 error | of T_A | seeds |\n"
    "|---|---|---|---|---|---|---|"
)


def relative_l1(learned: list[list[float]], true: list[list[float]]) -> float:
    """Sum of absolute differences over the sum of the true matrix (VolMin's estimation error)."""
    differences = sum(abs(a - b) for x, y in zip(learned, true, strict=True) for a, b in zip(x, y, strict=True))
    return differences / sum(map(sum, true))


def compared(run: Path) -> dict[str, Any] | None:
    """Diagonals and errors of the matrices of a run; None if it learned none or its noise has none."""
    found = json.loads((run / "transition.json").read_text(encoding="utf-8"))
    learned, true = found["class_transition"], found["true_class_transition"]
    if not learned or not true:
        return None
    pairs, true_pairs = found["affinity_transition"], found["true_affinity_transition"]
    return {
        "learned_diagonal": [learned[i][i] for i in range(len(learned))],
        "true_diagonal": [true[i][i] for i in range(len(true))],
        "transition_error": relative_l1(learned, true),
        "affinity_error": relative_l1(pairs, true_pairs) if pairs and true_pairs else None,
    }


def line(noise: str, method: str, runs: list[dict[str, Any]]) -> str:
    """A row under `HEADER`: means over the runs of a method."""

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    diagonal = [mean(list(values)) for values in zip(*(run["learned_diagonal"] for run in runs), strict=True)]
    of_pairs = [run["affinity_error"] for run in runs if run["affinity_error"] is not None]
    cells = (
        noise,
        method,
        " ".join(f"{value:.2f}" for value in runs[0]["true_diagonal"]),
        " ".join(f"{value:.2f}" for value in diagonal),
        f"{mean([run['transition_error'] for run in runs]):.3f}",
        f"{mean(of_pairs):.3f}" if of_pairs else "",
        str(len(runs)),
    )
    return "| " + " | ".join(cells) + " |"
