"""Which classes are mistaken for which, as bands between two columns of bars: SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jcas.schema import LabelSpace

WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 150, 150, 34, 10
BAR, GAP, LONGEST_NAME = 12, 14, 16
LEAST = 0.002
"""Bands with a smaller share of all wrong pixels would be hairlines and are left out."""


def flow_chart(pixels: Sequence[Sequence[float]], labels: LabelSpace) -> str | None:
    """Draw the off-diagonal part of ``pixels[true][given]``; None when nothing is wrong.

    A band runs from what the pixels are (left) to how they are labelled (right), as thick as it has pixels.
    """
    classes = range(labels.num_classes)
    total = sum(pixels[true][given] for true in classes for given in classes if true != given)
    if total <= 0:
        return None
    share = [[pixels[true][given] / total if true != given else 0.0 for given in classes] for true in classes]
    out = [sum(row) for row in share]
    into = [sum(share[true][given] for true in classes) for given in classes]
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Wrong pixels: what they are and how they are '
        f'labelled"><text class="axis" x="{LEFT}" y="16" text-anchor="end">what it is</text>'
        f'<text class="axis" x="{WIDTH - RIGHT}" y="16">how it is labelled</text>'
    ]
    bars = max(sum(each >= LEAST for each in column) for column in (out, into))
    scale = HEIGHT - TOP - BOTTOM - GAP * (bars - 1)
    left, left_bars = _column(out, scale, LEFT, "end", labels)
    right, right_bars = _column(into, scale, WIDTH - RIGHT - BAR, "start", labels)
    start, end, middle = LEFT + BAR, WIDTH - RIGHT - BAR, WIDTH / 2
    for true in classes:
        for given in classes:
            height = share[true][given] * scale
            if share[true][given] >= LEAST:
                a, b = left[true], right[given]
                path = (
                    f"M{start},{a:.1f}C{middle},{a:.1f} {middle},{b:.1f} {end},{b:.1f}V{b + height:.1f}"
                    f"C{middle},{b + height:.1f} {middle},{a + height:.1f} {start},{a + height:.1f}Z"
                )
                told = f"{labels.names[true]} labelled as {labels.names[given]}: {share[true][given]:.1%}"
                parts.append(
                    f'<path class="band" {_fill(true, labels)} d="{path}"><title>{escape(told)}</title></path>'
                )
            left[true] += height
            right[given] += height
    return "".join([*parts, left_bars, right_bars, "</svg>"])


def _column(
    shares: Sequence[float], scale: float, x: float, anchor: str, labels: LabelSpace
) -> tuple[list[float], str]:
    """The top of each class's bar, and the bars with their names."""
    tops, parts, y = [], [], float(TOP)
    for number, share in enumerate(shares):
        tops.append(y)
        if share < LEAST:
            continue
        height = share * scale
        name = labels.names[number]
        short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
        place = x - 8 if anchor == "end" else x + BAR + 8
        parts.append(f'<rect {_fill(number, labels)} x="{x}" y="{y:.1f}" width="{BAR}" height="{max(height, 1):.1f}"/>')
        parts.append(
            f'<text x="{place}" y="{y + height / 2 + 4:.1f}" text-anchor="{anchor}">{escape(short)} '
            f'<tspan class="share">{share:.0%}</tspan></text>'
        )
        y += height + GAP
    return tops, "".join(parts)


def _fill(number: int, labels: LabelSpace) -> str:
    """The colour of a class; the background's black would hide on a dark page."""
    colour = f"rgb({','.join(map(str, labels.colours[number]))})" if number else "var(--s0)"
    return f'style="fill:{colour}"'
