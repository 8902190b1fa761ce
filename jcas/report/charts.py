"""Line charts as SVG text. Colours are CSS classes, so that one chart serves light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 38


@dataclass(frozen=True)
class Series:
    """One line: points in rising x; y is None where there is no value."""

    name: str
    points: tuple[tuple[float, float | None], ...]
    colour: int = 0
    dashed: bool = False
    mark: float | None = None  # x of the point to ring, such as the selected epoch


@dataclass(frozen=True)
class Chart:
    """A drawn chart with all that its caption, legend and read-out need."""

    title: str
    note: str
    series: tuple[Series, ...]
    svg: str
    x_label: str


def line_chart(title: str, series: Sequence[Series], *, x_label: str, note: str = "") -> Chart | None:
    """Draw the series that have at least one value; None when there is nothing to draw."""
    shown = tuple(s for s in series if any(y is not None for _, y in s.points))
    if not shown:
        return None
    xs = [x for s in shown for x, _ in s.points]
    ys = [y for s in shown for _, y in s.points if y is not None]
    x_low, x_high = min(xs), max(xs)
    if x_low == x_high:  # a single epoch still deserves a dot in the middle
        x_low, x_high = x_low - 1, x_high + 1
    y_ticks = nice_ticks(min(ys), max(ys))
    y_low, y_high = min(y_ticks[0], min(ys)), max(y_ticks[-1], max(ys))

    def to_x(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def to_y(y: float) -> float:
        return TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'data-x0="{x_low:g}" data-x1="{x_high:g}" data-left="{LEFT}" data-right="{WIDTH - RIGHT}">'
    ]
    for y in y_ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{to_y(y):.1f}" y2="{to_y(y):.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{to_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in (t for t in nice_ticks(min(xs), max(xs)) if t == int(t) and min(xs) <= t <= max(xs)):
        parts.append(
            f'<text class="tick" x="{to_x(x):.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{x:g}</text>'
        )
    parts.append(
        f'<text class="tick axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">{escape(x_label)}</text>'
    )
    parts.append(f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}" visibility="hidden"/>')
    for one in shown:
        style = f"series s{one.colour}{' dashed' if one.dashed else ''}"
        for stretch in _stretches(one.points):
            if len(stretch) == 1:
                (x, y) = stretch[0]
                parts.append(f'<circle class="dot s{one.colour}" cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" r="2.5"/>')
            else:
                path = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in stretch)
                parts.append(f'<polyline class="{style}" points="{path}"/>')
        for x, marked in one.points:
            if marked is not None and x == one.mark:
                parts.append(f'<circle class="ring s{one.colour}" cx="{to_x(x):.1f}" cy="{to_y(marked):.1f}" r="4.5"/>')
    parts.append("</svg>")
    return Chart(title=title, note=note, series=shown, svg="".join(parts), x_label=x_label)


def nice_ticks(low: float, high: float, *, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) that enclose the range.

    >>> nice_ticks(0.3, 1.9)
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """
    if high == low:
        low, high = low - abs(low) / 2 - 0.5, high + abs(high) / 2 + 0.5
    raw = (high - low) / (count - 1)
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    return [round(i * step, 12) + 0.0 for i in range(floor(low / step), ceil(high / step) + 1)]


def _stretches(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Unbroken parts of a line: a missing value is a gap, not a bridge."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is not None and isfinite(y):
            stretches[-1].append((x, y))
        elif stretches[-1]:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]
