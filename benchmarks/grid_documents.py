"""What `grid` has measured, into README and docs: docs/results/ keeps it, every table is written from there."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

from documents import ROOT, read_section, write_section
from earlier import with_earlier, with_earlier_lines
from matrices import HEADER, compared, line
from parts import ABLATIONS, FLIPPED, LOOKS, MAIN, NARROWER, NOISES, SEEDS_OF_MAIN, WIDER, finished
from phantoms import KINDS
from PIL import Image

from jcas.benchmark.figures import draw_curves
from jcas.benchmark.summary import table_order
from jcas.benchmark.tables import commits_of, markdown, noise_rates

HEADLINES = {
    ("acdc", "symmetric:rate=0.5"): "cardiac MRI, half of the pixels flipped to any class",
    ("acdc", "asymmetric:rate=0.5"): "cardiac MRI, half of the pixels flipped, each class in its own way",
    ("acdc", "ellipse"): "cardiac MRI, ellipses",
    ("wbc", "sfda:wbc1_source"): "blood cells, labels of another laboratory's model",
    ("lidc", "none"): "lung nodules, one random reader",
}
CLASSES = {  # where a dataset does not name its own
    "acdc": {"class1": "right ventricle", "class2": "muscle", "class3": "left ventricle"},
}
FALL = 2  # points of Jac from the best epoch of a curve to its last
LEAST_GAP = 3  # points of Jac from the baseline to true labels of which a share says something, with one seed
DAR_BY_OPTION = ("jcas_no_appearance", "jcas_no_intra", "jcas_no_inter", "jcas_no_separate_refinement")  # on flips
DAR_BY_VERSION = (  # on flips, as far as they are of before b55c765
    "jcas_no_class_correction",
    "jcas_no_affinity_correction",
    "jcas_no_consistency",
    "jcas_no_neighbours",
    "jcas_no_robust_warmup",
)


def write_documents(part: str, work: Path) -> None:
    """The tables of a part into docs/RESULTS.md, its rows into docs/results/, its pictures into docs/pictures/.

    With what docs/results/ holds of earlier work folders and this one lacks (`with_earlier`).
    """
    out = work / part
    if not (out / "table.json").is_file():
        return
    results, pictures = ROOT / "docs" / "results", ROOT / "docs" / "pictures"
    results.mkdir(exist_ok=True)
    pictures.mkdir(exist_ok=True)
    own = _with_class_names(json.loads((out / "table.json").read_text(encoding="utf-8")), CLASSES.get(part, {}))
    own.pop("rows", None)  # what is shown is in the summary
    kept = results / f"grid_{part}.json"
    summary = with_earlier(own, json.loads(kept.read_text(encoding="utf-8"))) if kept.is_file() else own
    kept.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if part in LOOKS:  # one line for each noise, by `write_looks`
        return
    with TemporaryDirectory() as folder:
        for picture in draw_curves(summary, Path(folder)):
            if picture.suffix == ".png":
                shutil.copyfile(picture, pictures / f"{part}_{picture.name}")
    table = re.sub(r"^##? .*\n\n", "", markdown(summary), count=2, flags=re.MULTILINE)  # the page has its headings
    table = re.sub(r"^##(?=#? )", "###", table, flags=re.MULTILINE)
    shown = pictures / f"{part}_qualitative.jpg"
    lacking = _methods(summary) - _methods(own)
    if not shown.is_file() or all(method.startswith("jcas_") for _, method in lacking):  # other forms of JCAS, no peer
        with Image.open(out / "qualitative.png") as picture:
            small = picture.convert("RGB")
            small.thumbnail((1200, 2600))
            small.save(shown, quality=80)
    rates = noise_rates(summary).split("\n\n", 2)[2]
    pictured = f"![Test Jac by epoch, for looking only](pictures/{part}_curves.png)\n\n{rates}\n"
    below = f"\n![Image, truth, label, predictions](pictures/{part}_qualitative.jpg)\n"
    write_section("docs/RESULTS.md", f"grid {part}", pictured + table + below)


def _with_class_names(found: Any, names: dict[str, str]) -> Any:
    """A summary with other names of its classes."""
    if isinstance(found, dict):
        return {names.get(key, key): _with_class_names(value, names) for key, value in found.items()}
    if isinstance(found, list):
        return [_with_class_names(value, names) for value in found]
    return names.get(found, found) if isinstance(found, str) else found


def _methods(summary: dict[str, Any]) -> set[tuple[str, str]]:
    groups = [group for dataset in summary["datasets"] for group in dataset["noises"]]
    return {(group["noise"], entry["method"]) for group in groups for entry in group["methods"]}


def write_lines(
    document: str, section: str, lines: list[str], *, keys: int, order: Callable[[list[str]], Any] | None = None
) -> None:
    """A table into a document, with the rows that it already holds and this work folder lacks."""
    earlier = read_section(document, section).splitlines()
    write_section(document, section, "\n".join(with_earlier_lines(lines, earlier, keys=keys, order=order)))


def write_matrices(work: Path) -> None:
    """Learned against true matrices of the flipped labels of acdc into docs/RESULTS.md."""
    lines = HEADER.splitlines()
    for noise in sorted(NOISES["acdc"][1:]):
        for method, folders in sorted(finished(work, "acdc", noise).items(), key=lambda found: table_order(found[0])):
            found = [matrices for folder in folders.values() if (matrices := compared(folder))]
            if len(found) == (SEEDS_OF_MAIN if method in MAIN else 1):
                lines.append(line(noise, method, found))
    write_lines("docs/RESULTS.md", "matrices", lines, keys=2, order=lambda row: (row[0], table_order(row[1])))


def kept_group(part: str, noise: str) -> dict[str, Any]:
    """What docs/results/ holds of a part and noise."""
    path = ROOT / "docs" / "results" / f"grid_{part}.json"
    groups = json.loads(path.read_text(encoding="utf-8"))["datasets"][0]["noises"] if path.is_file() else []
    return next((group for group in groups if group["noise"] == noise), {"methods": [], "curves": []})


def kept_rows(part: str, noise: str) -> dict[str, dict[str, Any]]:
    """The rows of docs/results/ of a part and noise, by method."""
    return {row["method"]: row for row in kept_group(part, noise)["methods"]}


def own_row(rows: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """The row of JCAS and how it is marked: ``*`` where flipped labels were last trained with DAR."""
    if "jcas" in rows:
        return "", rows["jcas"]
    return "*", rows.get("jcas_with_dar")


def write_ends() -> None:
    """Whether JCAS and the baseline decline at the end of training, from docs/results/, into docs/RESULTS.md."""
    lines = [
        "| mean Jac of the curves | baseline, best epoch | last | jcas, best epoch | last |",
        "|---|--:|--:|--:|--:|",
    ]
    for part, noise in HEADLINES:
        curves = {line["method"]: line["mean"] for line in kept_group(part, noise)["curves"]}
        ends = [
            (f"{max(curve):.1f}", f"{curve[-1]:.1f}") if curve else ("–", "–")
            for curve in (curves.get("baseline"), curves.get("jcas"))
        ]
        lines.append(
            f"| {part}, {noise.split(':')[0]} | " + " | ".join(value for pair in ends for value in pair) + " |"
        )
    write_section("docs/RESULTS.md", "ends", "\n".join([*lines, *_falls_elsewhere()]))


def _with_own_curve(curves: dict[str, list[float]]) -> dict[str, list[float]]:
    """With that of JCAS or, where flipped labels were last trained with DAR, of what it was."""
    own = curves.get("jcas") or curves.get("jcas_with_dar")
    return curves | {"jcas": own} if own else curves


def _falls_elsewhere() -> list[str]:
    """The curves of JCAS in the quick look that end well below their best epoch."""
    curves = [
        (
            look.title,
            noise,
            _with_own_curve({line["method"]: line["mean"] for line in kept_group(part, noise)["curves"]}),
        )
        for part, look in LOOKS.items()
        for noise in look.noises
    ]
    shown = [found for found in curves if found[2].get("jcas") and found[2].get("baseline")]
    fallen = [found for found in shown if max(found[2]["jcas"]) - found[2]["jcas"][-1] > FALL]
    fallen.sort(key=lambda found: found[2]["jcas"][-1] - max(found[2]["jcas"]))
    too_wide_or_narrow = sum(noise in (WIDER, NARROWER) for _, noise, _ in fallen)
    lines = [
        "",
        f"Of {len(shown)} curves of JCAS in the quick look below, {len(fallen)} end more than {FALL} points below their"
        f" best epoch, {too_wide_or_narrow} of them with outlines drawn too wide or too narrow:",
        "",
        "| data | noise | baseline, best epoch | last | jcas, best epoch | last |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for title, noise, by_method in fallen:
        ends = [
            f"{value:.1f}" for name in ("baseline", "jcas") for value in (max(by_method[name]), by_method[name][-1])
        ]
        lines.append(f"| {title} | `{noise}` | " + " | ".join(ends) + " |")
    return lines


def write_ablations() -> None:
    """JCAS without each of its parts, beside JCAS with the same seeds, from docs/results/, into docs/METHOD.md."""
    columns = {column: kept_rows(*column) for column in HEADLINES}
    lines = [
        "| mean Jac on test images | " + " | ".join(f"{part}, {noise.split(':')[0]}" for part, noise in columns) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for name in ("jcas", *ABLATIONS):
        shown = []
        for rows in columns.values():
            empty: dict[str, Any] = {"by_seed": {}, "commits": {}}
            whole, own, dagger = rows.get("jcas", empty), rows.get(name, empty), ""
            with_dar = rows.get("jcas_with_dar")
            older = not {*own["commits"].values()} & {*whole["commits"].values()}
            if with_dar and (name in DAR_BY_OPTION or (name in DAR_BY_VERSION and older)):
                whole, dagger = with_dar, "†"
            seeds = sorted(set(own["by_seed"]) & set(whole["by_seed"]))
            every = ", ".join(f"{own['by_seed'][seed]:.1f}" for seed in seeds)
            change = ""
            if seeds and name != "jcas":
                lead = mean(own["by_seed"][seed] - whole["by_seed"][seed] for seed in seeds)
                other = any(own["commits"].get(seed) != whole["commits"].get(seed) for seed in seeds)
                change = f" ({lead:+.1f}{'*' if other else ''}{dagger})"
            shown.append(every + change if seeds else "–")
        if any(cell != "–" for cell in shown):
            lines.append(f"| `{name}` | " + " | ".join(shown) + " |")
    write_section("docs/METHOD.md", "ablations", "\n".join(lines))


def write_looks() -> None:
    """JCAS beside baseline, other methods and true labels on other data, from docs/results/, into docs/RESULTS.md."""
    lines = [
        "| data | noise | wrong pixels | baseline | best other method | jcas | true labels | gap closed | commits |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for part, look in LOOKS.items():
        path = ROOT / "docs" / "results" / f"grid_{part}.json"
        if not path.is_file():
            continue
        summary = json.loads(path.read_text(encoding="utf-8"))
        wrong = {found["noise"]: found["class_noise_rate"] for found in summary["noise_rates"]}
        upper = summary["datasets"][0]["upper_bound"]
        for noise in look.noises:
            rows = kept_rows(part, noise)
            star, row = own_row(rows)
            if upper is None or "baseline" not in rows or row is None:
                continue
            bound = upper["jac"]["mean"]["mean"]
            jac = {name: row["jac"]["mean"]["mean"] for name, row in rows.items()}
            baseline, own = jac["baseline"], row["jac"]["mean"]["mean"]
            peers = {name: value for name, value in jac.items() if name not in ("jcas", "baseline", *ABLATIONS)}
            best = max(peers, key=peers.__getitem__, default="")
            other = f"{peers[best]:.1f} ({best}, of {len(peers)})" if peers else "–"
            share = row["gap_recovered"]["mean"]
            first = own > max(baseline, *peers.values(), 0)
            shown = f"**{own:.1f}**{star}" if first else f"{own:.1f}{star}"
            scores = (f"{baseline:.1f}", other, shown, f"{bound:.1f}")
            closed = _closed(share) if bound - baseline >= LEAST_GAP else "–"
            commits = " / ".join(commits_of(each) for each in (rows["baseline"], row))
            cells = (look.title, f"`{noise}`", f"{wrong[noise]:.1%}", *scores, closed, commits)
            lines.append("| " + " | ".join(cells) + " |")
    write_section("docs/RESULTS.md", "looks", "\n".join(lines))


def write_elsewhere() -> None:
    """On how many pairs of data and noise of the quick look JCAS is behind the baseline, into README."""
    behind, barely_ahead, pairs, drawn_by_us, single = {}, 0, 0, 0, 0
    for part, look in LOOKS.items():
        for noise in look.noises:
            rows = kept_rows(part, noise)
            _, row = own_row(rows)
            if "baseline" not in rows or row is None:
                continue
            baseline, own = rows["baseline"]["by_seed"], row["by_seed"]
            seeds = sorted(set(baseline) & set(own))
            lead = round(mean(own[seed] - baseline[seed] for seed in seeds), 1)
            pairs, single = pairs + 1, single + (len(seeds) == 1)
            drawn_by_us += part in (*KINDS, "synth")
            barely_ahead += 0 <= lead < 1
            if lead < 0:
                behind[f"{look.title}, `{noise}`"] = lead
    where = "; ".join(f"{name}: {lead:+.1f}" for name, lead in behind.items())
    lines = [
        f"- **Elsewhere**: of {pairs} pairs of data and noise ({pairs - drawn_by_us} of real images, the blind ones as",
        f"  trained now among them, {drawn_by_us} of pictures that we draw ourselves; {single} compared on one seed)",
        f"  JCAS is ahead of the baseline in {pairs - len(behind)}, by less than a point in {barely_ahead} of them,",
        f"  and behind in {len(behind)}{f' ({where})' if behind else ''}.",
    ]
    write_section("README.md", "elsewhere", "\n".join(lines))


def write_unseen() -> None:
    """The first scores on sets that came when JCAS stood (docs/results/unseen.json), by kind of noise, into README."""
    kinds = {"flipped": FLIPPED, "drawn as ellipses": ("ellipse",), "drawn otherwise": ("dilate_erode", "polygon")}
    first = json.loads((ROOT / "docs" / "results" / "unseen.json").read_text(encoding="utf-8"))
    lines = [
        "| labels | pairs of data and noise | ahead of the baseline | share of the gap closed, median (range) |",
        "|---|--:|--:|--:|",
    ]
    for title, names in kinds.items():
        rows = [row for row in first["rows"] if row["noise"].startswith(names)]
        shares = [(row["jcas"] - row["baseline"]) / (row["upper_bound"] - row["baseline"]) for row in rows]
        spread = f"{median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"
        lines.append(f"| {title} | {len(rows)} | {sum(share > 0 for share in shares)} | {spread} |")
    write_section("README.md", "unseen", "\n".join([*lines, "", f"Commit {first['commit']}, seed {first['seed']}."]))


def _closed(share: float) -> str:
    """A share of a gap; beyond the whole of it the figure says nothing but how small the gap is."""
    return "all" if share >= 1 else f"{share:.0%}"


def _with_spread(row: dict[str, Any], *, bold: bool = False) -> str:
    """Mean Jac of a row and its deviation over seeds, if it has several."""
    jac = row["jac"]["mean"]
    mark = "**" if bold else ""
    return f"{mark}{jac['mean']:.1f}{mark}" + (f" ± {jac['std']:.1f}" if jac["std"] is not None else "")


def write_headline() -> None:
    """JCAS beside the baseline, the best other method and true labels, from docs/results/, into README."""
    lines = [
        "| mean Jaccard on test images | baseline | best other method | jcas | true labels | gap closed | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for (part, noise), title in HEADLINES.items():
        summary = json.loads((ROOT / "docs" / "results" / f"grid_{part}.json").read_text(encoding="utf-8"))
        data = summary["datasets"][0]
        rows = kept_rows(part, noise)
        jac = {name: row["jac"]["mean"]["mean"] for name, row in rows.items()}
        others = {name: value for name, value in jac.items() if name not in ("jcas", "baseline", *ABLATIONS)}
        best = max(others, key=others.__getitem__) if others else ""
        shown = f"{_with_spread(rows[best])} ({best}, best of {len(others)})" if others else "none trained"
        bounds = [row["jac"]["mean"] for row in (data["upper_bound"], rows["baseline"])]
        gap = bounds[0]["mean"] - bounds[1]["mean"]
        told = gap > max(found["std"] or 0 for found in bounds)  # else seeds differ by more than what is to be closed
        seeds = len(set(rows["jcas"]["seeds"]) & set(rows["baseline"]["seeds"]))
        cells = (
            title,
            _with_spread(rows["baseline"]),
            shown,
            _with_spread(rows["jcas"], bold=jac["jcas"] > max(jac["baseline"], *others.values(), 0)),
            _with_spread(data["upper_bound"]),
            _closed(rows["jcas"]["gap_recovered"]["mean"]) if told else "–",
            seeds,
        )
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    write_section("README.md", "headline", "\n".join(lines))


def write_tables(work: Path) -> None:
    """Every table that compares parts or methods."""
    write_matrices(work)
    write_ends()
    write_ablations()
    write_looks()
    write_elsewhere()
    write_unseen()
    write_headline()
