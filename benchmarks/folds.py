"""What single readers of unseen patients say about methods: a fair judge where labels have no habit.

    python benchmarks/folds.py ../shared/data --work runs/folds --jobs 2 --docs      # an hour on two cores of 2026

Lung nodules of the training and validation patients alone (those of the test are not touched): the patients in four
parts, each in turn kept from a training on the others, one random reader's outlines everywhere. As far as readers
err one by one, outlines that no training has seen are wrong in no method's favour: the Jaccard index with them is lower
than that with the truth, and ranks methods as it would; a habit that all readers share would be rewarded. Resumable.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from command import jcas
from documents import ROOT, commit, write_section
from parts import finished
from prepare import VALIDATION_SHARE, Rows, lidc_reader, read_split

from jcas.benchmark.summary import table_order

METHODS = ("baseline", "jcas_paper", "jcas", "jcas_no_dar", "jcas_no_affinity", "jcas_no_class_correction")
FOLDS = 4
KEPT = ROOT / "docs" / "results" / "folds.json"

Results = dict[str, dict[int, list[dict[str, Any]]]]  # of finished cells, by method and fold, seed by seed


def folds_of(rows: Rows, count: int, *, seed: int = 0) -> list[Rows]:
    """The rows of all patients but those of the test, for each fold: its own as ``test``, the others to train on."""
    patients = sorted({row["patient"] for row in rows if row["split"] != "test"})
    random.Random(seed).shuffle(patients)
    found = []
    for fold in range(count):
        held = patients[fold::count]
        others = [patient for patient in patients if patient not in held]
        split = dict.fromkeys(others, "train") | dict.fromkeys(others[::VALIDATION_SHARE], "val")
        split |= dict.fromkeys(held, "test")
        found.append([{**row, "split": split[row["patient"]]} for row in rows if row["patient"] in split])
    return found


def write_fold(source: Path, out: Path, rows: Rows) -> None:
    """A dataset whose only labels are those of one reader for each crop, the held-out ones included."""
    lidc_reader(source, out, seed=0, listed=rows)
    for mask in (out / "clean").iterdir():
        mask.unlink()
    (out / "clean").rmdir()


def earlier() -> Results:
    """What docs/results/ keeps of other work folders."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["methods"] if KEPT.is_file() else {}
    return {method: {int(fold) - 1: results for fold, results in folds.items()} for method, folds in kept.items()}


def merged(before: Results, now: Results) -> Results:
    """Fold by fold what has more seeds, the newer of two equals."""
    found: Results = {}
    for method in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(method, {}), now.get(method, {})
        better = {fold: results for fold, results in new.items() if len(results) >= len(old.get(fold, []))}
        found[method] = old | better
    return found


def scores(work: Path) -> Results:
    """What is finished in a work folder."""
    found: Results = {}
    for fold in range(FOLDS):
        for method, folders in finished(work, f"fold{fold}", "none").items():
            paths = [folders[seed] / "results.json" for seed in sorted(folders)]
            results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            found.setdefault(method, {})[fold] = results
    return found


def table(found: Results) -> str:
    """One line for each method: its score on every fold, mean over seeds, and the difference to JCAS by folds."""
    lines = [
        "| method | "
        + " | ".join(f"fold {fold + 1}" for fold in range(FOLDS))
        + " | mean | to `jcas` | seeds | commit |",
        "|---|" + "--:|" * (FOLDS + 3) + "---|",
    ]
    by_fold = {
        method: {fold: mean(each["jac"]["mean"] for each in results) for fold, results in folds.items()}
        for method, folds in found.items()
    }
    own = by_fold.get("jcas", {})
    for method in sorted(found, key=table_order):
        jac = by_fold[method]
        every = " | ".join(f"{jac[fold]:.1f}" if fold in jac else "–" for fold in range(FOLDS))
        change = [jac[fold] - own[fold] for fold in sorted(jac.keys() & own.keys())]
        shown = f"{mean(change):+.1f} ± {stdev(change) / len(change) ** 0.5:.1f}" if len(change) > 1 else "–"
        every_result = [result for results in found[method].values() for result in results]
        commits = ", ".join(sorted({result["commit"] or "–" for result in every_result}))
        seeds = min(map(len, found[method].values()))
        beside = "–" if method == "jcas" else shown
        average = f"{mean(jac.values()):.1f}" if len(jac) == FOLDS else "–"
        lines.append(f"| `{method}` | {every} | {average} | {beside} | {seeds} | {commits} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder with lidc4/")
    parser.add_argument("--work", type=Path, default=Path("runs/folds"), help="data and cells; continued if it exists")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time, one core each")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="of `jcas methods`")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--docs", action="store_true", help="write into docs/DEVELOPMENT.md and docs/results/")
    options = parser.parse_args()
    source, work = options.shared / "lidc4", options.work.resolve()
    for fold, rows in enumerate(folds_of(read_split(source), FOLDS)):
        data = work / "data" / f"fold{fold}"
        if not data.is_dir():
            building = data.with_name(f".{data.name}")
            shutil.rmtree(building, ignore_errors=True)
            write_fold(source, building, rows)
            building.rename(data)
        jcas(
            *("benchmark", str(data), "--noise", "none", "--methods", ",".join(options.methods)),
            *("--seeds", str(options.seeds)),
            *("--config", str(ROOT / "configs" / "lidc_small.yaml"), "--jobs", str(options.jobs)),
            *("--out", str(work / f"fold{fold}")),
        )
    found = merged(earlier(), scores(work))
    print(table(found))
    if options.docs:
        write_section("docs/DEVELOPMENT.md", "folds", table(found))
        kept = {method: {str(fold + 1): results for fold, results in folds.items()} for method, folds in found.items()}
        KEPT.write_text(json.dumps({"commit": commit(), "methods": kept}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
