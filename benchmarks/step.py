"""What JCAS costs on top of plain cross-entropy: training step and inference, DeepLabV2-ResNet101, 256 x 320, batch 3.

    python benchmarks/step.py                   # about 3 minutes on two idle cores

Both sides run in turns in one process on the same batch, so that a slow moment of the machine hits both. Prints ratios
of the medians and writes JSON. Goals: training at most 1.3x, inference with DAR at most 1.05x.
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
from documents import commit, write_section

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


def drawn_batch() -> Batch:
    noisy = torch.zeros(3, 256, 320, dtype=torch.long)
    for index in range(1, CLASSES):
        noisy[:, 40 * index : 40 * index + 60, 50 * index : 50 * index + 90] = index
    return Batch(image=torch.rand(3, 3, 256, 320), noisy=noisy, ids=("a", "b", "c"))


def measure(encoder: str, repeats: int) -> dict:
    torch.manual_seed(SEED)
    batch = drawn_batch()
    plain, jcas = build("baseline", encoder), build("jcas", encoder, warmup=0)
    with torch.no_grad():  # an epoch of one batch, after which the image may object to labels: the costlier kind
        jcas(batch)
    jcas.end_epoch(0)
    jcas.start_epoch(1)
    assert jcas.image_objects
    found: dict = {}
    for kind, make in (("training", training_step), ("inference", inference)):
        seconds = in_turns({"baseline": make(plain, batch), "jcas": make(jcas, batch)}, repeats)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        # Each round compares neighbours in time: the median of their ratios is steadier than the ratio of medians.
        ratios = [b / a for a, b in zip(seconds["baseline"], seconds["jcas"], strict=True)]
        found[kind] = {**medians, "ratio": statistics.median(ratios), "rounds": ratios}
    return found


def markdown(result: dict) -> str:
    lines = [
        f"| DeepLabV2-{result['encoder']}, 256 x 320, batch 3 | baseline, s | jcas, s | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    for kind, goal in (("training", TRAINING_GOAL), ("inference", INFERENCE_GOAL)):
        side = result[kind]
        lines.append(f"| {kind} | {side['baseline']:.2f} | {side['jcas']:.2f} | {side['ratio']:.3f}x | <= {goal}x |")
    lines += [
        "",
        f"Commit {result['commit']}, seed {SEED}, {result['threads']} threads, median of neighbouring rounds.",
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
        **measure(arguments.encoder, arguments.repeats),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
    if arguments.docs:
        write_section("docs/RESULTS.md", "step", markdown(result))
    goals = (("training", TRAINING_GOAL), ("inference", INFERENCE_GOAL))
    missed = [kind for kind, goal in goals if result[kind]["ratio"] > goal]
    if missed:
        sys.exit(f"missed: {', '.join(missed)} (is the machine idle?)")


if __name__ == "__main__":
    main()
