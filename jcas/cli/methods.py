"""The command that tells what can be trained: `methods`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jcas.cli.options import examples

UPPER_BOUND = "upper_bound"


@examples("jcas methods", "jcas methods volmin")
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this one: formula, options, what differs from its paper.")
    ] = None,
) -> None:
    """List the methods: name, paper, what each needs beyond a backbone. With a NAME: all about that one."""
    from jcas.methods import METHODS, VARIANTS

    if name is not None:
        _print_card(name)
        return
    named = Table("name", "paper", "needs", title="methods (a run: jcas train DATA --method NAME)")
    for name, cls in METHODS.items():
        named.add_row(name, cls.paper, cls.needs)
    named.add_row(UPPER_BOUND, "baseline on true labels", "clean/; in jcas benchmark --methods only")
    named.columns[0].no_wrap = True
    variants = Table("name", "is", "with", title="variants: rows and ablations of the paper, and of our own parts")
    for name, (base, options) in VARIANTS.items():
        variants.add_row(name, base, _settings(options))
    variants.columns[0].no_wrap = variants.columns[1].no_wrap = True
    Console().print(named, variants)


def _print_card(name: str) -> None:
    """What is written of a method in its class, and its options."""
    from jcas.methods import VARIANTS, method_class, method_options, option_defaults
    from jcas.methods.card import card_paragraphs

    out, method = Console(highlight=False), "baseline" if name == UPPER_BOUND else name
    cls = method_class(method)
    if name == UPPER_BOUND:
        out.print(f"{name}: baseline trained on the true labels of clean/, a row of jcas benchmark. The same as a run:")
        out.print("jcas train DATA --method baseline --labels clean\n")
    elif name in VARIANTS:
        out.print(f"{name}: {VARIANTS[name][0]} with {_settings(VARIANTS[name][1])}\n", markup=False)
    for paragraph in card_paragraphs(cls):
        out.print(paragraph + "\n", markup=False)
    defaults, by_length, table = option_defaults(method), cls.schedule(50), Table("option", "default")
    chosen = {**defaults, **method_options(method, {}, epochs=50)}
    of_preset = cls.preset_options(**chosen)
    for option, value in chosen.items():
        shown = json.dumps(of_preset.get(option) if value is None else value).replace("null", "none")
        table.add_row(option, f"{shown} in a run of 50 epochs" if option in by_length else shown)
    out.print("--set OPTION=VALUE:" if defaults else "It has no options.")
    if defaults:
        out.print(table)


def _settings(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={json.dumps(value)}" for key, value in options.items())
