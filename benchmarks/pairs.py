"""What pairs add where labels are flipped: JCAS beside `jcas_no_affinity`, over all data that docs/results/ holds.

    python benchmarks/pairs.py --docs      # at once; rows by benchmarks/grid.py --methods jcas jcas_no_affinity

One set says little: a point is within what seeds differ by. Many sets, each with the same seeds of both, say more.
"""

from __future__ import annotations

import argparse
from statistics import mean, stdev
from typing import Any

from documents import write_section
from grid import CONFIGS, FLIPPED, LOOKS, NOISES, kept_rows
from phantoms import KINDS

WITHOUT = "jcas_no_affinity"


def differences() -> list[dict[str, Any]]:
    """A row for each set of flipped labels: scores with and without pairs, means over common seeds of one version."""
    found = []
    for part in (*CONFIGS, *LOOKS):
        noises = LOOKS[part].noises if part in LOOKS else NOISES.get(part, ())
        for noise in noises:
            if noise.partition(":")[0] not in FLIPPED:
                continue
            both = [kept_rows(part, noise).get(name, {"by_seed": {}, "commits": {}}) for name in ("jcas", WITHOUT)]
            seeds = sorted(set(both[0]["by_seed"]) & set(both[1]["by_seed"]))
            if seeds:
                with_pairs, without = (mean(row["by_seed"][seed] for seed in seeds) for row in both)
                commits = [sorted({row["commits"][seed] or "–" for seed in seeds}) for row in both]
                found.append(
                    {
                        "part": part,
                        "title": LOOKS[part].title if part in LOOKS else part,
                        "noise": noise,
                        "with": with_pairs,
                        "without": without,
                        "seeds": len(seeds),
                        "commits": " / ".join(", ".join(each) for each in commits),
                    }
                )
    return found


def summary(rows: list[dict[str, Any]], name: str) -> str:
    """Mean difference, its standard error over sets, and in how many pairs help."""
    gains = [row["with"] - row["without"] for row in rows]
    error = f" ± {stdev(gains) / len(gains) ** 0.5:.2f}" if len(gains) > 1 else ""
    return f"{name}: {mean(gains):+.2f}{error} ({sum(gain > 0 for gain in gains)} of {len(gains)} sets)"


def table(rows: list[dict[str, Any]]) -> str:
    """All differences, and what they come to."""
    lines = [
        "| data | noise | without pairs | with | difference | seeds | commit (with / without) |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        scores = f"{row['without']:.1f} | {row['with']:.1f} | {row['with'] - row['without']:+.1f}"
        lines.append(f"| {row['title']} | `{row['noise']}` | {scores} | {row['seeds']} | {row['commits']} |")
    real = [row for row in rows if row["part"] not in (*KINDS, "synth")]
    drawn = [row for row in rows if row not in real]
    told = [summary(some, name) for some, name in ((real, "Real images"), (drawn, "pictures that we draw")) if some]
    return "\n".join([*lines, "", f"{'; '.join(told)}; ± is the standard error over sets."])


def write_pairs() -> None:
    write_section("docs/METHOD.md", "pairs", table(differences()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="write into docs/METHOD.md")
    if parser.parse_args().docs:
        write_pairs()
    print(table(differences()))


if __name__ == "__main__":
    main()
