"""docs/PAPER.md tells the truth: the functions and tests that its tables name exist, and no mismatch is missing."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import jcas.core

ROOT = Path(__file__).resolve().parents[1]
FUNCTION = re.compile(r"`(jcas(?:\.\w+)+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def tables(text: str) -> list[list[list[str]]]:
    """The Markdown tables of a text: header and rows, each a list of cells; the ruler line is left out."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not inside:
            found.append([])
        inside = True
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].append(cells)
    return found


def resolved(dotted: str) -> Any:
    """The object of a dotted name: the longest importable module, then attributes."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if not dotted.startswith(error.name or "?"):
                raise  # the module exists, something that it imports does not
            continue
        for attribute in parts[length:]:
            value = getattr(value, attribute)
        return value
    raise ModuleNotFoundError(dotted)


def names_of_tests(path: Path) -> set[str]:
    """Names of the test functions of a file, read without running it."""
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


TEXT = (ROOT / "docs" / "PAPER.md").read_text("utf-8")
EQUATIONS, SYMBOLS, MISMATCHES, *_ = tables(TEXT)


@pytest.mark.parametrize("row", EQUATIONS[1:], ids=lambda row: row[0])
def test_each_equation_names_a_function_and_a_test(row: list[str]):
    assert len(row) == len(EQUATIONS[0]) == 4
    assert FUNCTION.findall(row[2]), f"no function in {row[2]!r}"
    assert TEST.findall(row[3]), f"no test in {row[3]!r}"


@pytest.mark.parametrize("name", sorted(set(FUNCTION.findall(TEXT))))
def test_each_named_function_can_be_imported(name: str):
    assert callable(resolved(name))


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(TEXT))))
def test_each_named_test_exists(path: str, name: str):
    assert name in names_of_tests(ROOT / path)


def test_every_formula_of_core_is_on_the_map():
    named = {name.removeprefix("jcas.core.").split(".")[0] for name in FUNCTION.findall(TEXT)}
    not_of_the_paper = {"from_counts", "pair_flip", "sparsity"}
    assert set(jcas.core.__all__) - not_of_the_paper <= named


def test_all_mismatches_are_listed_once_and_in_order():
    assert MISMATCHES[0][0] == "#"
    assert [row[0] for row in MISMATCHES[1:]] == [str(number) for number in range(1, 32)]
    for row in MISMATCHES:
        assert len(row) == 5 and all(row), f"empty or surplus cell in row {row[0]}"


def test_symbols_carry_a_name_and_a_rule():
    assert len(SYMBOLS) > 8
    for row in SYMBOLS:
        assert len(row) == 4 and row[0] and row[1] and row[3]


def test_recipe_points_at_mismatches_that_exist():
    # The recipe of the method names rows of docs/PAPER.md in brackets beside each switch.
    source = (ROOT / "jcas" / "methods" / "recipe.py").read_text("utf-8")
    numbers = {int(n) for group in re.findall(r"#.*\[([\d, ]+)\]", source) for n in group.split(",")}
    assert numbers and numbers <= set(range(1, 32))


def test_parser_and_resolver_can_fail():
    assert tables("| a | b |\n|---|:-:|\n| 1 | 2 |\n\ntext\n| c |\n|---|") == [[["a", "b"], ["1", "2"]], [["c"]]]
    assert resolved("jcas.core.Affinity.propagate") is jcas.core.Affinity.propagate
    with pytest.raises(AttributeError):
        resolved("jcas.core.Affinity.teleport")
    with pytest.raises(AttributeError):
        resolved("jcas.nowhere")
    assert "test_that_nobody_wrote" not in names_of_tests(Path(__file__))
