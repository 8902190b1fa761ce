"""What pairs add where labels are flipped: JCAS beside `jcas_no_affinity`, over all data that docs/results/ holds.

Also what DAR would do to it (`jcas_with_dar`): JCAS uses pairs of flipped labels without it.

    python benchmarks/pairs.py --docs      # at once

Rows come from ``benchmarks/grid.py ../shared/data --parts ... --methods jcas jcas_no_affinity --docs``. One set says
little: a point is within what seeds differ by. Many sets, each with the same seeds of both, say more; those of one
source of images (ACDC, say) are counted as one in the mean.
"""

from __future__ import annotations

import argparse
from statistics import mean, stdev
from typing import Any

from documents import write_section
from grid_documents import kept_rows
from parts import CONFIGS, FLIPPED, LOOKS, NOISES
from phantoms import KINDS

WITHOUT, WITH_DAR = "jcas_no_affinity", "jcas_with_dar"
SOURCES = {"ACDC": ("acdc", "acdc300", "lv", "heart"), "blood cells": ("wbc1", "wbc2", "cell")}


def differences() -> list[dict[str, Any]]:
    """A row for each set of flipped labels: scores with and without pairs, means over common seeds."""
    found = []
    for part in (*CONFIGS, *LOOKS):
        noises = LOOKS[part].noises if part in LOOKS else NOISES.get(part, ())
        for noise in noises:
            if noise.partition(":")[0] not in FLIPPED:
                continue
            rows = kept_rows(part, noise)
            both = [rows.get(name, {"by_seed": {}, "commits": {}}) for name in ("jcas", WITHOUT)]
            seeds = sorted(set(both[0]["by_seed"]) & set(both[1]["by_seed"]))
            if seeds:
                with_pairs, without = (mean(row["by_seed"][seed] for seed in seeds) for row in both)
                commits = [sorted({row["commits"].get(seed) or "–" for seed in seeds}) for row in both]
                found.append(
                    {
                        "part": part,
                        "title": LOOKS[part].title if part in LOOKS else part,
                        "noise": noise,
                        "with": with_pairs,
                        "without": without,
                        "with_dar": _mean_of(rows.get(WITH_DAR), seeds),
                        "seeds": len(seeds),
                        "commits": " / ".join(", ".join(each) for each in commits),
                    }
                )
    return found


def _mean_of(row: dict[str, Any] | None, seeds: list[str]) -> float | None:
    """Of the seeds that it has; None if it has none of them."""
    found = [row["by_seed"][seed] for seed in seeds if seed in row["by_seed"]] if row else []
    return mean(found) if found else None


def summary(rows: list[dict[str, Any]], name: str) -> str:
    """Mean difference over sources of images, its standard error, and on how many sets pairs help."""
    gains = [row["with"] - row["without"] for row in rows]
    sources = sorted({source(row["part"]) for row in rows})
    by_source = [mean(g for g, row in zip(gains, rows, strict=True) if source(row["part"]) == each) for each in sources]
    error = f" ± {stdev(by_source) / len(by_source) ** 0.5:.2f}" if len(by_source) > 1 else ""
    return f"{name}: {mean(by_source):+.2f}{error} ({sum(gain > 0 for gain in gains)} of {len(gains)} sets up)"


def source(part: str) -> str:
    """Where the images of a part come from."""
    return next((name for name, parts in SOURCES.items() if part in parts), part)


def table(rows: list[dict[str, Any]]) -> str:
    """All differences, and what they come to."""
    lines = [
        "| data | noise | without pairs | with | difference | seeds | commit (with / without) | with DAR, too |",
        "|---|---|--:|--:|--:|--:|---|--:|",
    ]
    for row in rows:
        scores = f"{row['without']:.1f} | {row['with']:.1f} | {row['with'] - row['without']:+.1f}"
        dar = "–" if row["with_dar"] is None else f"{row['with_dar']:.1f}"
        lines.append(f"| {row['title']} | `{row['noise']}` | {scores} | {row['seeds']} | {row['commits']} | {dar} |")
    real = [row for row in rows if row["part"] not in (*KINDS, "synth")]
    drawn = [row for row in rows if row not in real]
    told = [summary(some, name) for some, name in ((real, "Real images"), (drawn, "pictures that we draw")) if some]
    return "\n".join([*lines, "", f"{'; '.join(told)}; mean over sources of images ± its standard error."])


def write_pairs() -> None:
    write_section("docs/DEVELOPMENT.md", "pairs", table(differences()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="write into docs/DEVELOPMENT.md")
    if parser.parse_args().docs:
        write_pairs()
    print(table(differences()))


if __name__ == "__main__":
    main()
