"""What commands tell the user: lines on stderr, tables of scores on stdout."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table


def say(text: str) -> None:
    """A line for people on stderr, as it is: rich would read brackets in a path as markup and wrap it."""
    print(text, file=sys.stderr)


def complain(message: str) -> None:
    """A line on stderr about what went wrong."""
    print(f"jcas: {message}", file=sys.stderr)


def warn_of_noisy_truth(results: dict[str, Any]) -> None:
    """Say so if a model was scored against masks that may be wrong."""
    if results.get("truth") == "masks":
        say("no clean/ masks: scored against masks/, which may be wrong themselves")


def print_results(rows: list[dict[str, Any]]) -> None:
    """Tables of Dice and Jaccard, and of the surfaces where they were measured; one row per result."""
    table = Table(title=f"{rows[0]['dataset']}, {rows[0].get('split', 'test')} split, percent")
    table.add_column("method")
    names = [name for name in rows[0]["jac"] if name != "mean"]
    for name in [*names, "mean"]:
        table.add_column(f"{name}\nDice", justify="right")
        table.add_column(f"{name}\nJac", justify="right")
    for row in rows:
        cells = [_cell(row[metric][name]) for name in [*names, "mean"] for metric in ("dice", "jac")]
        table.add_row(row["method"] + (" (clean labels)" if row.get("upper_bound") else ""), *cells)
    Console().print(table)
    surface = [metric for metric in ("hd95", "assd", "nsd", "missed") if metric in rows[0]]
    if not surface:
        return
    unit = rows[0]["distance_unit"]
    headings = {
        "hd95": f"HD95\n{unit}",
        "assd": f"ASSD\n{unit}",
        "nsd": f"NSD, %\nwithin {rows[0]['nsd_tolerance']:g} {unit}",
        "missed": "missed\n% of images",
    }
    table = Table("method", "class", title="surfaces, within the image or slice")
    for metric in surface:
        table.add_column(headings[metric], justify="right")
    for row in rows:
        for name in [*names, "mean"]:
            table.add_row(row["method"], name, *(_cell(row[metric][name]) for metric in surface))
    Console().print(table)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
