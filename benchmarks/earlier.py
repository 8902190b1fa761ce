"""What earlier work folders have measured: rows of the documents that the folder at hand cannot make again.

A grid takes hours and may be trained on several machines, one part after the other. docs/results/ keeps the summary of
each part; what the work folder at hand has not trained, or with fewer seeds, is taken from there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from jcas.benchmark.grid import FREE, UPPER_BOUND
from jcas.benchmark.noisy_sets import CLEAN, set_name
from jcas.benchmark.summary import MEAN, gap_recovered, mark_best, methods_of, table_order

Summary = dict[str, Any]

_SAME_RATE = 1e-3
_SAME_JAC = 1.0  # what another image size makes; windows and whole images may differ by six


def with_earlier(summary: Summary, earlier: Summary) -> Summary:
    """A summary of a grid with the rows, curves and noises of an earlier one that it lacks.

    A row is replaced by one of at least as many seeds. Shares of the gap and marks are made anew, because their
    references may have changed. Rows of other settings, or of other labels under the same name, are refused. Earlier
    curves that do not end at their row's score, or at that of a seed, show predictions made in another way and are left
    out.
    """
    _expect_alike(summary, earlier)
    earlier, merged = _with_agreeing_curves(earlier), copy.deepcopy(summary)
    merged["versions"] = sorted({*summary["versions"], *earlier["versions"]})
    known = {(found["dataset"], found["noise"]) for found in summary["noise_rates"]}
    kept = [found for found in earlier["noise_rates"] if (found["dataset"], found["noise"]) not in known]
    merged["noise_rates"] = [*kept, *merged["noise_rates"]]
    for before in earlier["datasets"]:
        now = next((found for found in merged["datasets"] if found["dataset"] == before["dataset"]), None)
        if now is None:
            merged["datasets"].append(copy.deepcopy(before))
            continue
        now["upper_bound"] = _better(now["upper_bound"], before["upper_bound"])
        now["noises"] = _groups(now["noises"], before["noises"])
    for dataset in merged["datasets"]:
        _compare(dataset)
    done = {
        "__".join((set_name(dataset["dataset"], group["noise"]), entry["method"]))
        for dataset in merged["datasets"]
        for group in dataset["noises"]
        for entry in group["methods"]
    }
    bounded = [dataset["dataset"] for dataset in merged["datasets"] if dataset["upper_bound"]]
    done |= {"__".join((set_name(name, CLEAN), UPPER_BOUND)) for name in bounded}
    merged["unfinished"] = [cell for cell in merged["unfinished"] if cell.rsplit("__", 1)[0] not in done]
    return merged


def _expect_alike(now: Summary, before: Summary) -> None:
    for key, value in now["settings"].items():
        if key not in FREE and key in before["settings"] and before["settings"][key] != value:
            raise ValueError(f"earlier rows have {key}={before['settings'][key]!r}, these {value!r}: not one table")
    rates = {(found["dataset"], found["noise"]): found["class_noise_rate"] for found in before["noise_rates"]}
    for found in now["noise_rates"]:
        rate = rates.get((found["dataset"], found["noise"]))
        if None not in (rate, found["class_noise_rate"]) and abs(rate - found["class_noise_rate"]) > _SAME_RATE:
            raise ValueError(
                f"earlier rows have {rate:.2%} of wrong pixels under {found['noise']}: not the same labels"
            )


def _with_agreeing_curves(summary: Summary) -> Summary:
    summary = copy.deepcopy(summary)
    for dataset in summary["datasets"]:
        bound = [dataset["upper_bound"]] if dataset["upper_bound"] else []
        for group in dataset["noises"]:
            scores = {  # of all seeds, and of single ones: a curve may be of one
                entry["method"]: [entry["jac"][MEAN]["mean"], *entry.get("by_seed", {}).values()]
                for entry in (*bound, *group["methods"])
            }
            group["curves"] = [
                line
                for line in group["curves"]
                if any(abs(line["mean"][-1] - score) <= _SAME_JAC for score in scores.get(line["method"], ()))
            ]
    return summary


def _better(now: Any, before: Any) -> Any:
    """Of two rows of a method the one with more seeds, the newer of two equals; values of seeds trained anew count."""
    if now is None or before is None:
        return now or before
    if len(now["seeds"]) >= len(before["seeds"]):
        return now
    return before | {key: before.get(key, {}) | now[key] for key in ("by_seed", "commits")}


def _groups(now: list[Any], before: list[Any]) -> list[Any]:
    found = {group["noise"]: group for group in before}
    order = [*found, *(group["noise"] for group in now if group["noise"] not in found)]
    merged = []
    for noise in order:
        new, old = next((group for group in now if group["noise"] == noise), None), found.get(noise)
        if new is None or old is None:
            merged.append(copy.deepcopy(new or old))
            continue
        group = copy.deepcopy(new)
        group["methods"] = _rows(old["methods"], new["methods"])
        chosen = {entry["method"] for entry in group["methods"] if any(entry is one for one in new["methods"])}
        curves = {line["method"]: line for line in old["curves"]}
        for line in new["curves"]:
            if line["method"] in chosen or line["method"] not in curves:
                curves[line["method"]] = line
        group["curves"] = list(curves.values())
        merged.append(group)
    return merged


def _rows(before: list[Any], now: list[Any]) -> list[Any]:
    """Rows of a noise; `_compare` sorts them."""
    new = {entry["method"]: entry for entry in now}
    rows = [_better(new.pop(entry["method"], None), entry) for entry in before]
    return [*rows, *new.values()]


def _compare(dataset: Any) -> None:
    """Shares of the gap, marks and the order of rows, with the references that stand now."""
    dataset["methods"] = methods_of(dataset["noises"])
    upper = dataset["upper_bound"] and dataset["upper_bound"]["jac"][MEAN]["mean"]
    for group in dataset["noises"]:
        for lines in (group["methods"], group["curves"]):
            lines.sort(key=lambda line: table_order(line["method"]))
        rows = {entry["method"]: entry for entry in group["methods"]}
        baseline = rows["baseline"]["jac"][MEAN]["mean"] if "baseline" in rows else None
        for entry in group["methods"]:
            jac = entry["jac"][MEAN]
            share = gap_recovered(jac["mean"], baseline=baseline, upper_bound=upper)
            spread = None if share is None or jac["std"] is None else jac["std"] / (upper - baseline)
            entry["gap_recovered"] |= {"mean": share, "std": spread}
        mark_best(group["methods"], dataset["classes"])


def with_earlier_lines(
    lines: list[str], earlier: list[str], *, keys: int, order: Callable[[list[str]], Any] | None = None
) -> list[str]:
    """A Markdown table (head, rule, rows) with the rows of an earlier one that it lacks, sorted by ``order`` if given.

    A row is known by its first ``keys`` cells. Of a row that both have, cells that are empty now keep what they held.
    """

    def cells(line: str) -> list[str]:
        return [cell.strip() for cell in line.strip().strip("|").split("|")]

    if not earlier or cells(earlier[0]) != cells(lines[0]):
        return lines
    rows = {tuple(cells(line)[:keys]): cells(line) for line in earlier[2:]}
    for line in lines[2:]:
        found = cells(line)
        before = rows.get(tuple(found[:keys]), found)
        rows[tuple(found[:keys])] = [old if new == "–" else new for new, old in zip(found, before, strict=True)]
    merged = sorted(rows.values(), key=order) if order else rows.values()
    return [*lines[:2], *("| " + " | ".join(row) + " |" for row in merged)]
