"""What the audit says of the whole dataset: matrix, noise rates with intervals, and a picture of the confusions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve
from numpy.typing import NDArray

from jcas.audit.posterior import Matrix
from jcas.core import affinity_noise_rate, class_noise_rate, from_counts, pair_counts
from jcas.schema import LabelSpace

RESAMPLES, LEVEL = 1000, 0.95
Counts = NDArray[np.float64]  # (images, C, C)


def summarise(joints: Counts, *, seed: int = 0) -> dict[str, Any]:
    """T, prior and noise rates from the expected counts of each image; intervals by bootstrap over images.

    The affinity rate is that of the pixel pairs within an image, averaged over images, as `jcas corrupt` measures it.
    The intervals tell how much the choice of images matters, not whether the model is right.
    """
    total = joints.sum(0)
    if not total.sum():
        raise ValueError("no labelled pixel to judge: every mask is ignored")
    pixels = joints.sum((1, 2))
    wrong = pixels - np.trace(joints, axis1=1, axis2=2)
    labelled = pixels > 0
    pairs = np.array([_rate(affinity_noise_rate, joint) for joint in joints[labelled]])
    draws = np.random.default_rng(seed)
    class_rates, pair_rates = [], []
    for _ in range(RESAMPLES):
        chosen = draws.integers(len(joints), size=len(joints))
        class_rates.append(wrong[chosen].sum() / max(pixels[chosen].sum(), 1e-300))
        pair_rates.append(pairs[draws.integers(len(pairs), size=len(pairs))].mean())
    return {
        "class_transition": from_counts(torch.from_numpy(total)).tolist(),
        "affinity_transition": from_counts(pair_counts(torch.from_numpy(joints))).tolist(),
        "prior": (total.sum(1) / total.sum()).tolist(),
        "class_noise_rate": _interval(_rate(class_noise_rate, total), class_rates),
        "affinity_noise_rate": _interval(float(pairs.mean()), pair_rates),
    }


def _rate(rate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], joint: Matrix) -> float:
    counts = torch.from_numpy(joint)
    return float(rate(from_counts(counts), counts.sum(1)))


def _interval(value: float, resampled: list[float]) -> dict[str, float]:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"value": value, "low": float(min(low, value)), "high": float(max(high, value))}


def draw_confusions(joint: Matrix, labels: LabelSpace, path: Path) -> None:
    """Draw the expected wrong pixels as bands from what they are (left) to how they are labelled (right)."""
    wrong = joint * ~np.eye(len(joint), dtype=bool)
    total = wrong.sum()
    figure = Figure(figsize=(7.2, 4.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set(xlim=(-0.42, 1.42), ylim=(-0.02, 1.1))
    share = total / joint.sum()
    figure.suptitle(f"Expected wrong pixels: {share:.2%} of all", fontsize=12)
    if total > 0:
        colours = [tuple(channel / 255 for channel in colour) for colour in labels.colours]
        colours[0] = (0.45, 0.45, 0.45)  # the background's black would hide every band
        left = _bars(axes, wrong.sum(1) / total, 0.0, colours, labels.names)
        right = _bars(axes, wrong.sum(0) / total, 1.0, colours, labels.names)
        for clean in range(len(joint)):
            for given in range(len(joint)):
                height = wrong[clean, given] / total * _SPAN
                if height > 0:
                    _band(axes, left[clean], right[given], height, colours[clean])
                    left[clean] -= height
                    right[given] -= height
    for x, side, text in ((0.0, "right", "what it is"), (1.0, "left", "how it is labelled")):
        axes.text(x, 1.06, text, ha=side, fontsize=9, color="0.35")
    figure.savefig(path)


_SPAN, _GAP, _WIDTH = 0.86, 0.04, 0.025


def _bars(axes: Any, shares: NDArray[np.float64], x: float, colours: list[Any], names: tuple[str, ...]) -> list[float]:
    """Stack the classes from the top and return where each begins."""
    tops, y = [], 1.0
    for share, colour, name in zip(shares, colours, names, strict=True):
        tops.append(y)
        if share <= 0:
            continue
        height = share * _SPAN
        axes.add_patch(Rectangle((x - (0 if x else _WIDTH), y - height), _WIDTH, height, color=colour))
        place, side = (x - 0.05, "right") if x == 0 else (x + 0.05, "left")
        axes.text(place, y - height / 2, f"{name}  {share:.0%}", ha=side, va="center", fontsize=9)
        y -= height + max(_GAP, 0.05 - height)  # thin bars keep room for their names
    return tops


def _band(axes: Any, start: float, end: float, height: float, colour: Any) -> None:
    points = [
        (0, start), (0.5, start), (0.5, end), (1, end),
        (1, end - height), (0.5, end - height), (0.5, start - height), (0, start - height), (0, start),
    ]  # fmt: skip
    codes = [Curve.MOVETO, *[Curve.CURVE4] * 3, Curve.LINETO, *[Curve.CURVE4] * 3, Curve.CLOSEPOLY]
    axes.add_patch(PathPatch(Curve(points, codes), facecolor=colour, alpha=0.45, linewidth=0))
