"""Time and memory of the affinity work of one training step, beside a dense form that builds the n x n maps.

    python benchmarks/affinity.py               # about 2 minutes on two idle cores
    python benchmarks/affinity.py --wait        # also the exact loss at full resolution (about 4 minutes more)

Each side runs in a process of its own, so that its peak memory is its own; ratios are taken within one run. Prints
a table and writes JSON. Sizes: the paper's training step (64 x 64 grid, d = 256, batch 3) and full resolution
(256 x 320).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from documents import commit, write_section
from torch import Tensor

from jcas.core import Affinity, corrected_affinity_loss, refine

SEED = 0
PRIOR = (0.8398, 0.0889, 0.0201, 0.0512)  # EndoVis18 instrument parts
PAIR_TRANSITION = ((0.7778, 0.2222), (0.6667, 0.3333))  # what symmetric 0.5 noise does to pairs
TARGETS = {
    "speed_ratio": 12.0,
    "memory_share": 1 / 20,
    "gradient_error": 1e-4,
    "full_dar_seconds": 2.0,
    "full_mb": 600.0,
}


class Problem:
    """Features, coarse logits, noisy labels and T_A of one step."""

    def __init__(self, batch: int, dims: int, height: int, width: int, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(SEED)
        self.features = torch.randn(batch, dims, height, width).to(dtype).requires_grad_()
        self.coarse = torch.randn(batch, len(PRIOR), height, width).to(dtype).requires_grad_()
        draws = torch.multinomial(torch.tensor(PRIOR), batch * height * width, replacement=True)
        self.noisy = draws.view(batch, height, width)
        self.pair_transition = torch.tensor(PAIR_TRANSITION, dtype=dtype, requires_grad=True)

    def clear(self) -> None:
        """Forget the gradients of the last step."""
        for leaf in (self.features, self.coarse, self.pair_transition):
            leaf.grad = None


def fused_step(problem: Problem) -> None:
    affinity = Affinity(problem.features)
    loss = corrected_affinity_loss(affinity, problem.noisy, problem.pair_transition)
    (loss + refine(problem.coarse, affinity).square().mean()).backward()


def dense_step(problem: Problem) -> None:
    """The same step as the paper reads: cosine map, its row normalisation, the reverse map, one log per pair."""
    flat = problem.features.flatten(2).relu()
    unit = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-9)
    cosine = (unit.transpose(1, 2) @ unit).clamp(1e-10, 1)
    affinity = cosine / cosine.sum(2, keepdim=True)
    reverse = 1 - affinity
    reverse = reverse / reverse.sum(2, keepdim=True)
    coarse = problem.coarse.flatten(2).transpose(1, 2)
    refined = coarse + (affinity @ coarse - reverse @ coarse) / 2
    labels = problem.noisy.flatten(1)
    same = (labels[:, :, None] == labels[:, None, :]).to(cosine.dtype)
    table = problem.pair_transition
    noisy_same = ((1 - cosine) * table[0, 1] + cosine * table[1, 1]).clamp(1e-10, 1)
    noisy_different = ((1 - cosine) * table[0, 0] + cosine * table[1, 0]).clamp(1e-10, 1)
    loss = -(same * noisy_same.log() + (1 - same) * noisy_different.log()).mean()
    (loss + refined.square().mean()).backward()


def dar_step(problem: Problem) -> None:
    refine(problem.coarse, Affinity(problem.features)).square().mean().backward()


def exact_loss_step(problem: Problem) -> None:
    corrected_affinity_loss(Affinity(problem.features), problem.noisy, problem.pair_transition).backward()


def sampled_loss_step(problem: Problem) -> None:
    loss = corrected_affinity_loss(
        Affinity(problem.features), problem.noisy, problem.pair_transition, max_pairs=1_000_000
    )
    loss.backward()


STEPS: dict[str, Callable[[Problem], None]] = {
    "fused": fused_step,
    "dense": dense_step,
    "dar": dar_step,
    "exact": exact_loss_step,
    "sampled": sampled_loss_step,
}


def memory_mb(field: str) -> float:
    """``VmRSS`` (now) or ``VmHWM`` (the highest since `forget_peak`) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    """Let the highest memory use start from now: making the inputs is not the work."""
    Path("/proc/self/clear_refs").write_text("5")


def worker(task: dict) -> dict:
    """Runs in a child process: seconds (best of the repeats), extra peak memory, gradient of T_A."""
    step = STEPS[task["form"]]
    step(Problem(1, 8, 8, 8))  # imports, thread pools and kernels are not the work
    problem = Problem(task["batch"], task["dims"], task["height"], task["width"])
    forget_peak()
    before, seconds = memory_mb("VmRSS"), []
    for _ in range(task["repeats"]):
        problem.clear()
        start = time.perf_counter()
        step(problem)
        seconds.append(time.perf_counter() - start)
    gradient = problem.pair_transition.grad
    result = {
        "seconds": min(seconds),
        "extra_mb": memory_mb("VmHWM") - before,
        "pair_transition_gradient": None if gradient is None else gradient.double().tolist(),
    }
    if task.get("profile"):
        problem.clear()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step(problem)
        times = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
        products = sum(spent for key, spent in times.items() if key in ("aten::mm", "aten::addmm_", "aten::bmm"))
        result["matrix_product_share"] = products / sum(times.values())
    return result


def in_own_process(
    form: str, *, batch: int, dims: int, height: int, width: int, repeats: int = 3, **more: bool
) -> dict:
    task = {"form": form, "batch": batch, "dims": dims, "height": height, "width": width, "repeats": repeats, **more}
    command = [sys.executable, __file__, "--worker", json.dumps(task)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def true_pair_gradient(batch: int, dims: int, height: int, width: int) -> Tensor:
    """Gradient of T_A in float64, row block by row block and without autograd."""
    problem = Problem(batch, dims, height, width, torch.float64)
    table = problem.pair_transition.detach()
    gradient, pairs = torch.zeros(2, 2, dtype=torch.float64), batch * (height * width) ** 2
    for features, labels in zip(problem.features.detach().flatten(2), problem.noisy.flatten(1), strict=True):
        unit = features.relu() / features.relu().norm(dim=0)
        for rows in torch.arange(height * width).split(512):
            cosine = unit[:, rows].t() @ unit
            same = labels[rows, None] == labels[None]
            for kind in (0, 1):
                mine = same == bool(kind)
                inverse = mine / ((1 - cosine) * table[0, kind] + cosine * table[1, kind])
                gradient[0, kind] -= ((1 - cosine) * inverse).sum() / pairs
                gradient[1, kind] -= (cosine * inverse).sum() / pairs
    return gradient


def exponent(counts: list[int], seconds: list[float]) -> float:
    """Slope of log(seconds) against log(n)."""
    x, y = ([math.log(value) for value in values] for values in (counts, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def measure(wait: bool) -> dict:
    paper = {"batch": 3, "dims": 256, "height": 64, "width": 64}
    full = {"batch": 1, "dims": 64, "height": 256, "width": 320}
    fused, dense = in_own_process("fused", **paper, profile=True), in_own_process("dense", **paper, repeats=2)
    truth = true_pair_gradient(**paper)

    def relative_error(side: dict) -> float:
        return ((torch.tensor(side["pair_transition_gradient"]) - truth).abs() / truth.abs()).max().item()

    result: dict = {
        "seed": SEED,
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "torch": torch.__version__,
        "paper_size": {
            "fused": fused,
            "dense": dense,
            "speed_ratio": dense["seconds"] / fused["seconds"],
            "memory_share": fused["extra_mb"] / dense["extra_mb"],
            "gradient_error": relative_error(fused),
            "dense_gradient_error": relative_error(dense),
        },
        "full_resolution": {form: in_own_process(form, **full, repeats=2) for form in ("dar", "sampled")},
    }
    if wait:
        result["full_resolution"]["exact"] = in_own_process("exact", **full, repeats=1)
    # From where the work outweighs fixed costs (the start of kernels, the drawn block itself).
    growth = {"dar": (128, 192, 256, 384, 512), "exact": (64, 96, 128, 192), "sampled": (192, 256, 384, 512)}
    result["growth"] = {}
    for form, sides in growth.items():
        seconds = [in_own_process(form, batch=1, dims=64, height=s, width=s, repeats=3)["seconds"] for s in sides]
        counts = [side * side for side in sides]
        result["growth"][form] = {"n": counts, "seconds": seconds, "exponent": exponent(counts, seconds)}
    return result


def markdown(result: dict) -> str:
    paper, full = result["paper_size"], result["full_resolution"]
    fused, dense = paper["fused"], paper["dense"]
    lines = [
        "| loss + DAR, forward + backward, n = 4096, d = 256, B = 3, float32 | ours | dense | ratio | goal |",
        "|---|---|---|---|---|",
        f"| seconds | {fused['seconds']:.2f} | {dense['seconds']:.2f} | {paper['speed_ratio']:.1f}x | >= 12x |",
        f"| extra peak memory, MB | {fused['extra_mb']:.0f} | {dense['extra_mb']:.0f} "
        f"| 1/{1 / paper['memory_share']:.0f} | <= 1/20 |",
        f"| relative error of dL/dT_A against float64 | {paper['gradient_error']:.1e} "
        f"| {paper['dense_gradient_error']:.1e} | | <= 1e-4 |",
        f"| share of time in matrix products | {fused['matrix_product_share']:.0%} | | | |",
        "",
        "| full resolution, n = 81,920, d = 64, B = 1, forward + backward | seconds | extra peak memory, MB | goal |",
        "|---|---|---|---|",
    ]
    goals = {"dar": "< 2 s", "sampled": "<= 600 MB", "exact": "<= 600 MB"}
    names = {"dar": "DAR", "sampled": "pair loss, 1,000,000 pairs drawn", "exact": "pair loss, exact"}
    for form, side in full.items():
        lines.append(f"| {names[form]} | {side['seconds']:.2f} | {side['extra_mb']:.0f} | {goals[form]} |")
    lines += ["", "| growth with n | fitted exponent | range of n |", "|---|---|---|"]
    for form, side in result["growth"].items():
        lines.append(f"| {names[form]} | {side['exponent']:.2f} | {side['n'][0]} .. {side['n'][-1]} |")
    lines += ["", f"Commit {result['commit']}, seed {SEED}, torch {result['torch']}, {result['threads']} threads."]
    return "\n".join(lines)


def misses(result: dict) -> list[str]:
    paper, full = result["paper_size"], result["full_resolution"]
    checks = {
        "speed ratio": paper["speed_ratio"] >= TARGETS["speed_ratio"],
        "memory share": paper["memory_share"] <= TARGETS["memory_share"],
        "T_A gradient error": paper["gradient_error"] <= TARGETS["gradient_error"],
        "full-resolution DAR time": full["dar"]["seconds"] <= TARGETS["full_dar_seconds"],
        **{f"full-resolution {form} memory": side["extra_mb"] <= TARGETS["full_mb"] for form, side in full.items()},
    }
    return [name for name, met in checks.items() if not met]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait", action="store_true", help="also the exact loss at full resolution")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "affinity.json")
    parser.add_argument("--docs", action="store_true", help="put the tables into README.md and docs/RESULTS.md")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(worker(json.loads(arguments.worker))))
        return
    result = measure(arguments.wait)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(markdown(result))
    if arguments.docs:
        write_section("docs/RESULTS.md", "affinity", markdown(result))
        write_section("README.md", "affinity", "\n".join(markdown(result).splitlines()[:5]))
    if missed := misses(result):
        sys.exit(f"\nmissed: {', '.join(missed)} (is the machine idle?)")


if __name__ == "__main__":
    main()
