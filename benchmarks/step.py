"""What JCAS costs on top of plain cross-entropy: training step and inference, DeepLabV2-ResNet101, 256 x 320, batch 3.

    python benchmarks/step.py                   # about 6 minutes on two idle cores

Both sides run in turns in one process on the same batch, so that a slow moment of the machine hits both. JCAS is past
its warm-up, once with flipped labels (corrected losses, pairs, DAR) and once with drawn ones (the image objects), and
refines predictions by appearance in both. Prints ratios and writes JSON. Goals: training at most 1.3x, inference at
most 1.05x.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from documents import ROOT, commit, write_section

from jcas.methods import METHODS, Method
from jcas.models import build_model
from jcas.schema import Batch

SEED, CLASSES = 0, 4
TRAINING_GOAL, INFERENCE_GOAL = 1.3, 1.05


def build(name: str, encoder: str, **options: object) -> Method:
    torch.manual_seed(SEED)
    cls = METHODS[name]
    model = build_model(encoder, num_classes=CLASSES, channels=3, **cls.model_options(encoder, **options))
    return cls(model, CLASSES, **options)


def training_step(method: Method, batch: Batch) -> Callable[[], None]:
    optimizer = torch.optim.SGD(
        [{"params": group} for group in method.parameter_groups().values() if group], lr=1e-4, momentum=0.9
    )
    method.train()

    def step() -> None:
        optimizer.zero_grad()
        method(batch)["loss"].backward()
        optimizer.step()

    return step


def inference(method: Method, batch: Batch) -> Callable[[], None]:
    @torch.inference_mode()
    def step() -> None:
        method.eval()
        method.predict(batch.image)

    return step


def in_turns(sides: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(repeats + 1):
        for name, step in sides.items():
            start = time.perf_counter()
            step()
            if round_number:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return seconds


def labelled(kind: str) -> Batch:
    """Three noisy images with boxes for labels, or with half of their labels flipped."""
    noisy = torch.zeros(3, 256, 320, dtype=torch.long)
    for index in range(1, CLASSES):
        noisy[:, 40 * index : 40 * index + 60, 50 * index : 50 * index + 90] = index
    if kind == "flipped":
        noisy = torch.where(torch.rand(noisy.shape) < 0.5, torch.randint(0, CLASSES, noisy.shape), noisy)
    return Batch(image=torch.rand(3, 3, 256, 320), noisy=noisy, ids=("a", "b", "c"))


def past_the_warm_up(encoder: str, kind: str, batch: Batch) -> Method:
    """JCAS that has seen an epoch of one batch and found that looks tell classes apart and refinement pays."""
    method = build("jcas", encoder, warmup=0)
    with torch.no_grad():
        method(batch)
    method.end_epoch(0)
    method.start_epoch(1)
    method.evidence.outlines.telling.fill_(True)
    method.evidence.gain.fill_(1.0)
    assert method.findings()["predictions"] == "refined by appearance"
    assert method.image_objects == (kind == "drawn") and method.uses_pairs == (kind == "flipped")
    return method


def measure(encoder: str, repeats: int) -> list[dict]:
    torch.manual_seed(SEED)
    plain, found = build("baseline", encoder), []
    for kind in ("flipped", "drawn"):
        batch = labelled(kind)
        jcas = past_the_warm_up(encoder, kind, batch)
        for work, make, goal in (("training", training_step, TRAINING_GOAL), ("inference", inference, INFERENCE_GOAL)):
            seconds = in_turns({"baseline": make(plain, batch), "jcas": make(jcas, batch)}, repeats)
            # Each round compares neighbours in time: the median of their ratios is steadier than the ratio of medians.
            ratios = [b / a for a, b in zip(seconds["baseline"], seconds["jcas"], strict=True)]
            medians = {name: statistics.median(values) for name, values in seconds.items()}
            ratio = statistics.median(ratios)
            found.append({"work": f"{work}, {kind} labels", **medians, "ratio": ratio, "rounds": ratios, "goal": goal})
    return found


def markdown(result: dict) -> str:
    lines = [
        f"| DeepLabV2-{result['encoder']}, 256 x 320, batch 3 | baseline, s | jcas, s | ratio by rounds | goal |",
        "|---|---|---|---|---|",
    ]
    for side in result["rows"]:
        times = f"{side['baseline']:.2f} | {side['jcas']:.2f} | {side['ratio']:.3f}x"
        lines.append(f"| {side['work']} | {times} | <= {side['goal']}x |")
    lines += [
        "",
        f"Commit {result['commit']}, seed {SEED}, {result['threads']} threads; medians over rounds, so that the ratio "
        "by rounds need not be that of the times.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="resnet101")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "step.json")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/RESULTS.md")
    arguments = parser.parse_args()
    result = {
        "seed": SEED,
        "commit": commit(),
        "encoder": arguments.encoder,
        "threads": torch.get_num_threads(),
        "rows": measure(arguments.encoder, arguments.repeats),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
    if arguments.docs:
        write_section("docs/RESULTS.md", "step", markdown(result))
        (ROOT / "docs" / "results" / "step.json").write_text(json.dumps(result, indent=1) + "\n")
    missed = [row["work"] for row in result["rows"] if row["ratio"] > row["goal"]]
    if missed:
        sys.exit(f"missed: {', '.join(missed)} (is the machine idle?)")


if __name__ == "__main__":
    main()
