"""The summary as text: Markdown to read, LaTeX to print; best and second marked as in the paper's Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jcas.benchmark.noisy_sets import AS_THEY_ARE
from jcas.benchmark.progress import readable
from jcas.benchmark.summary import DECIMALS, MEAN, METRICS

_HEADINGS = {"dice": "Dice", "jac": "Jac"}
_SHARED = ("encoder", "pretrained", "size", "crop", "augmentation", "epochs", "batch_size", "optimizer", "selection")


def markdown(summary: Mapping[str, Any]) -> str:
    """Content of ``table.md``."""
    lines = ["# Benchmark", "", _shared_settings(summary), ""]
    for dataset in summary["datasets"]:
        lines += [f"## {dataset['dataset']}", ""]
        if len(dataset["noises"]) > 1:
            lines += ["Mean Jac (%) by noise:", "", *_overview(dataset), ""]
        for group in dataset["noises"]:
            lines += [f"### {noise_title(group['noise'])}", "", *_noise_table(dataset, group), ""]
        lines += [*_notes(dataset), ""]
    if summary["failed"]:
        lines += ["## Failed cells", "", *(f"- `{f['cell']}`: {f['error']}" for f in summary["failed"]), ""]
    if summary["unfinished"]:
        lines += ["## Unfinished cells", "", *(f"- `{name}`" for name in summary["unfinished"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def noise_rates(summary: Mapping[str, Any]) -> str:
    """Content of ``noise_rates.md``: how wrong pixels and pixel pairs are (the paper's Fig. 1)."""
    lines = [
        "# Noise rates",
        "",
        "Share of wrong pixel labels, and of pixel pairs of one image whose same/different relation is wrong.",
        "",
        "| dataset | noise | wrong pixels | wrong pairs | cleaner |",
        "|---|---|--:|--:|---|",
    ]
    for found in summary["noise_rates"]:
        pixels, pairs = found["class_noise_rate"], found["affinity_noise_rate"]
        if pixels is None:
            cells = ["unknown", "unknown", "no true labels to compare with"]
        else:
            cleaner = "equal" if pixels == pairs else "pairs" if pairs < pixels else "pixels"
            cells = [f"{100 * pixels:.1f} %", f"{100 * pairs:.1f} %", cleaner]
        lines.append(_line([found["dataset"], _quoted(found["noise"]), *cells]))
    return "\n".join(lines) + "\n"


def latex(summary: Mapping[str, Any]) -> str:
    """Content of ``table.tex``: one table per dataset in the paper's form (needs booktabs and multirow)."""
    return "\n".join(_latex_table(dataset) for dataset in summary["datasets"])


def method_name(method: str) -> str:
    """Method as a table shows it."""
    return method.replace("_", " ")


def noise_title(noise: str) -> str:
    """Noise as a heading shows it.

    >>> noise_title("none"), noise_title("symmetric:rate=0.5")
    ('labels as given', 'symmetric:rate=0.5')
    """
    return "labels as given" if noise == AS_THEY_ARE else noise


def number(cell: Mapping[str, Any], *, decimals: int = DECIMALS) -> str:
    """Mean ± deviation, and the paper's number in brackets where it has one.

    >>> number({"mean": 71.2, "std": 0.3, "paper": 71.384})
    '71.20 ± 0.30 (71.38)'
    """
    if cell["mean"] is None:
        shown = "–"
    else:
        shown = f"{cell['mean']:.{decimals}f}"
        if cell["std"] is not None:
            shown += f" ± {cell['std']:.{decimals}f}"
    return shown if cell["paper"] is None else f"{shown} ({cell['paper']:.{decimals}f})"


def _shared_settings(summary: Mapping[str, Any]) -> str:
    settings = summary["settings"]
    shared = ", ".join(f"{key} {settings[key]}" for key in _SHARED if settings.get(key) is not None)
    versions = ", ".join(sorted({found.partition(" ")[0] for found in summary["versions"]})) or "nothing finished"
    return f"Shared by all cells: {shared}. Version: {versions}."


def _overview(dataset: Mapping[str, Any]) -> list[str]:
    groups = dataset["noises"]
    lines = [_line(["method", *(_quoted(group["noise"]) for group in groups)]), _rule(1, len(groups))]
    if dataset["upper_bound"]:
        upper = number(dataset["upper_bound"]["jac"][MEAN])
        lines.append(_line([method_name("upper_bound"), *[upper] * len(groups)]))
    for method in dataset["methods"]:
        found = [next((e for e in group["methods"] if e["method"] == method), None) for group in groups]
        lines.append(_line([method_name(method), *("–" if e is None else _marked(e["jac"][MEAN]) for e in found)]))
    return lines


def _noise_table(dataset: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    columns = _columns(dataset)
    head = ["method", *(f"{name} {_HEADINGS[metric]}" for name, metric in columns)]
    lines = [_line([*head, "gap recovered", "seeds", "time", "CPU", "MB", "commit"]), _rule(1, len(columns) + 5, 1)]
    entries = [dataset["upper_bound"]] if dataset["upper_bound"] else []
    for entry in [*entries, *group["methods"]]:
        scores = [_marked(entry[metric][name]) for name, metric in columns]
        measured = [_measured(entry["cpu_seconds"], " s"), _measured(entry["peak_memory_mb"])]
        cost = [str(len(entry["seeds"])), readable(entry["seconds"]), *measured, commits_of(entry)]
        lines.append(_line([method_name(entry["method"]), *scores, number(entry["gap_recovered"]), *cost]))
    return lines


def _measured(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.0f}{unit}"


def commits_of(entry: Mapping[str, Any]) -> str:
    """What trained the seeds of a row; – for seeds of which nobody knows, as in older summaries."""
    commits = entry.get("commits", {})
    return ", ".join(sorted({commits.get(str(seed)) or "–" for seed in entry["seeds"]}))


def _notes(dataset: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{dataset['split'].capitalize()} split, percent, mean ± standard deviation over seeds; **best** and "
        "<u>second</u> of each column (without the upper bound, which trains on true labels, and JCAS without a part). "
        "Gap recovered: "
        "(Jac − baseline) / (upper bound − baseline). Time of training, processor time (which other work on the "
        "machine lengthens less) and peak memory are those of one cell; – if not measured. Commit: of the code that "
        "trained them.",
    ]
    if _has_paper(dataset):
        lines += ["", "In brackets: Table 1 of the paper, whose epoch was the best on the test split; ours never is."]
    told = {entry["method"] for group in dataset["noises"] for entry in group["methods"] if entry.get("told")}
    if told:
        lines += [
            "",
            f"Told the true share of wrong labels of each class, as their papers assume: {', '.join(sorted(told))}.",
        ]
    unsure = [_quoted(group["noise"]) for group in dataset["noises"] if group["truth"] == "masks"]
    if unsure:
        lines += ["", f"No clean/ for {', '.join(unsure)}: scores are against masks/, right or wrong."]
    return lines


def _quoted(noise: str) -> str:
    title = noise_title(noise)
    return f"`{noise}`" if title == noise else title


def _has_paper(dataset: Mapping[str, Any]) -> bool:
    return any(e["jac"][MEAN]["paper"] is not None for group in dataset["noises"] for e in group["methods"])


def _columns(dataset: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, metric) for name in (*dataset["classes"], MEAN) for metric in METRICS]


def _marked(cell: Mapping[str, Any]) -> str:
    text = number({**cell, "paper": None})
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(cell["mark"], text)
    return text if cell["paper"] is None else f"{text} ({cell['paper']:.{DECIMALS}f})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rule(texts: int, numbers: int, last_texts: int = 0) -> str:
    return "|" + "---|" * texts + "--:|" * numbers + "---|" * last_texts


def _latex_table(dataset: Mapping[str, Any]) -> str:
    names = [*dataset["classes"], "Average"]
    paper = " Ours, then the paper's number in brackets." if _has_paper(dataset) else ""
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_tex(dataset['dataset'])}: Dice and Jac in percent, mean $\pm$ standard deviation over seeds. "
        rf"Best and second best results are \textbf{{highlighted}} and \underline{{underlined}}.{paper}}}",
        r"\begin{tabular}{ll" + "cc" * len(names) + "ccc}",
        r"\toprule",
        " & ".join(
            [r"\multirow{2}{*}{Noise}", r"\multirow{2}{*}{Method}"]
            + [rf"\multicolumn{{2}}{{c}}{{{_tex(name[:1].upper() + name[1:])}}}" for name in names]
            + ["Gap", "Time", "Memory"]
        )
        + r" \\",
        " & ".join(["", "", *["Dice", "Jac"] * len(names), "recovered", "(s)", "(MB)"]) + r" \\",
        r"\midrule",
    ]
    if dataset["upper_bound"]:
        lines += [_latex_row("", dataset, dataset["upper_bound"]), r"\midrule"]
    for position, group in enumerate(dataset["noises"]):
        if position:
            lines.append(r"\midrule")
        for number_of_row, entry in enumerate(group["methods"]):
            rows = len(group["methods"])
            first = rf"\multirow{{{rows}}}{{*}}{{{_tex(noise_title(group['noise']))}}}" if number_of_row == 0 else ""
            lines.append(_latex_row(first, dataset, entry))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex_row(first: str, dataset: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    scores = [_latex_number(entry[metric][name]) for name, metric in _columns(dataset)]
    cost = [f"{entry['seconds']:.0f}", _measured(entry["peak_memory_mb"]).replace("–", "--")]
    cells = [first, _tex(method_name(entry["method"])), *scores, _latex_number(entry["gap_recovered"]), *cost]
    return " & ".join(cells) + r" \\"


def _latex_number(cell: Mapping[str, Any]) -> str:
    text = number({**cell, "paper": None}).replace("±", r"$\pm$").replace("–", "--")
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell["mark"], text)
    return text if cell["paper"] is None else f"{text} ({cell['paper']:.{DECIMALS}f})"


def _tex(text: str) -> str:
    words = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    return "".join(words.get(c) or (rf"\{c}" if c in "&%$#_{}" else c) for c in text)
