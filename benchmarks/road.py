"""Every noise, three methods, real cardiac MRI: the table of docs/RESULTS.md, and learned against true matrices.

    python benchmarks/road.py ../shared/data/acdc --work runs/road --jobs 2      # about 30 minutes on two idle cores

Resumable: finished runs are kept, interrupted ones continue. Writes docs/results/road.json and prints markdown; rows
that the work folder lacks stay as they are there, so that ``--methods jcas`` renews those of one method (10 minutes),
and ``--noises`` some of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from command import jcas
from documents import ROOT, write_section
from matrices import HEADER, compared, line

NOISES = {
    "symmetric": ["--set", "rate=0.5"],
    "asymmetric": ["--set", "rate=0.5"],
    "pair_flip": ["--set", "rate=0.4"],
    "ellipse": [],
    "markov": [],
    "dilate_erode": [],
    "polygon": [],
}
METHODS = ("baseline", "volmin", "jcas")


def train(data: Path, out: Path, *flags: str) -> None:
    if (out / "results.json").is_file():
        return
    if (out / "checkpoints" / "last.ckpt").is_file():
        jcas("train", "--resume", "--out", str(out), quiet=True)
    else:
        subprocess.run(["rm", "-rf", str(out)], check=True)
        jcas("train", str(data), "--config", str(ROOT / "configs" / "acdc.yaml"), "--out", str(out), *flags, quiet=True)
    print(f"done: {out.name}", file=sys.stderr, flush=True)


def collect(work: Path, kept: list[dict]) -> dict:
    earlier = {(row["noise"], row["method"]): row for row in kept}
    rows = []
    for noise in ("none", *NOISES):
        for method in METHODS:
            run = work / f"{noise}_{method}"
            if not (run / "results.json").is_file():
                rows += [earlier[noise, method]] if (noise, method) in earlier else []
                continue
            result = json.loads((run / "results.json").read_text())
            keys = ("version", "commit", "seed", "dice", "jac", "selected_epoch", "last_epoch", "seconds")
            row = {"noise": noise, "method": method, **{key: result[key] for key in keys}}
            row["peak_memory_mb"], row["noise_info"] = result["peak_memory_mb"], result["noise_info"]
            rows.append(row | (compared(run) or {}))
    return {"command": "python benchmarks/road.py ../shared/data/acdc", "config": "configs/acdc.yaml", "rows": rows}


def markdown(table: dict) -> str:
    lines = [
        "| noise | wrong pixels / pairs | method | Jac (selected) | Jac (last) | Dice | epoch | seconds | MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in table["rows"]:
        info = row["noise_info"] if row["noise"] != "none" else None  # the upper bound never sees the noisy labels
        rates = f"{info['class_noise_rate']:.1%} / {info['affinity_noise_rate']:.1%}" if info else "-"
        name = "upper bound" if row["noise"] == "none" else row["method"]
        lines.append(
            f"| {row['noise']} | {rates} | {name} | {row['jac']['mean']:.1f} | {row['last_epoch']['jac']['mean']:.1f} "
            f"| {row['dice']['mean']:.1f} | {row['selected_epoch']} | {row['seconds']:.0f} "
            f"| {row['peak_memory_mb']:.0f} |"
        )
    lines += ["", HEADER]
    for row in table["rows"]:
        if "transition_error" in row and row["noise"] in ("symmetric", "asymmetric", "pair_flip"):
            lines.append(line(row["noise"], row["method"], [row]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of ACDC slices")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "road")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time, one thread each")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "road.json")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=tuple(NOISES))
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/RESULTS.md")
    arguments = parser.parse_args()
    work = arguments.work
    for noise in arguments.noises:
        if not (work / "data" / noise).exists():
            jcas("corrupt", str(arguments.data), "--noise", noise, "--out", str(work / "data" / noise), *NOISES[noise])
    jobs = [
        (work / "data" / noise, work / f"{noise}_{method}", ("--method", method))
        for noise in arguments.noises
        for method in arguments.methods
    ]
    if "baseline" in arguments.methods:
        bound = ("--method", "baseline", "--labels", "clean")
        jobs.insert(0, (work / "data" / arguments.noises[0], work / "none_baseline", bound))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for finished in [pool.submit(train, data, out, *flags) for data, out, flags in jobs]:
            finished.result()
    kept = json.loads(arguments.out.read_text())["rows"] if arguments.out.is_file() else []
    table = collect(work, kept)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(table, indent=1) + "\n")
    print(markdown(table))
    if arguments.docs:
        write_section("docs/RESULTS.md", "road", markdown(table))


if __name__ == "__main__":
    main()
