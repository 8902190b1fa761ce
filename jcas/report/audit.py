"""The report on an audit: how wrong the masks are, which ones, what kind of mistakes, and how they were judged."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

from jcas.report.charts import Series, line_chart
from jcas.report.flow import flow_chart
from jcas.report.gallery import Gallery, label_png, palette_png, read_labels, small_image
from jcas.report.page import render_page, write_page
from jcas.schema import LabelSpace

_ABOUT = "audit.json"
FORMAT = "1"
LABEL_LAYERS = ("given", "predicted", "repaired")
SIZES = ((300, 256), (800, 192))
"""Up to that many images the pictures have that long side; with more the smallest, so that the page stays small."""
SMALLEST = 128

WRONGNESS = (
    (0.1, "10–25 %", (255, 222, 89)),
    (0.25, "25–50 %", (255, 166, 33)),
    (0.5, "50–75 %", (245, 96, 20)),
    (0.75, "75–90 %", (222, 38, 93)),
    (0.9, "over 90 %", (160, 0, 130)),
)
"""Wrong-label probability from which on a colour holds, in words, and the colour."""

MOST_FINDINGS = 4
"""Findings that are written out under a picture; the rest is counted."""

KINDS = {
    "superfluous": "an object that should not be there",
    "missing": "an object that is not marked",
    "wrong_class": "an object marked as another class",
    "wrong_outline": "an outline drawn too wide or too narrow",
    "empty_mask": "nothing marked in the whole image",
    "stray_component": "a small part far from the rest of its class",
    "hole": "a hole inside an object",
    "class_absent": "a class that both neighbouring images have",
    "mismatched_pair": "a mask that fits another image better",
    "duplicate_conflict": "copies of one image with different masks",
}


@dataclass(frozen=True)
class Finding:
    """One line of ``issues.csv``; region 0 speaks of the whole image."""

    region: int
    kind: str
    given: str
    suggested: str
    probability: float | None
    pixels: int


@dataclass(frozen=True)
class AuditFolder:
    """All that an audit folder tells; pictures stay on disk."""

    folder: Path
    about: Mapping[str, Any]
    labels: LabelSpace
    images: tuple[Mapping[str, Any], ...]  # worst first
    findings: Mapping[str, tuple[Finding, ...]]  # by image id


def is_audit(folder: Path) -> bool:
    """Whether a folder holds a finished audit."""
    return (Path(folder) / _ABOUT).is_file()


def build_audit_report(folder: Path, out: Path, *, title: str = "") -> Path:
    """Write one self-contained HTML file about an audit folder."""
    audit = read_audit_folder(Path(folder))
    about, labels = audit.about, audit.labels
    gallery = _pack(audit)
    every = [finding for found in audit.findings.values() for finding in found]
    context: dict[str, Any] = {
        "title": title or f"Audit of {about['dataset']}",
        "about": about,
        "verdict": _verdict(audit),
        "tiles": _tiles(audit),
        "kinds": [
            (kind.replace("_", " "), KINDS.get(kind, ""), count, len(_images_with(audit, kind)))
            for kind, count in Counter(finding.kind for finding in every).most_common()
        ],
        "classes": _classes(about, labels),
        "chart": _quality_chart(audit),
        "flow": flow_chart(about["expected_pixels"], labels) if about.get("expected_pixels") else None,
        "rates": _rates(about),
        "matrices": _matrices(about, labels),
        "facts": _facts(audit),
        "config": yaml.safe_dump(about["config"], sort_keys=False) if about.get("config") else None,
        "gallery": {"runs": [{"name": "audit", "colour": 0}], "entries": gallery.entries, "together": _layers(audit)},
        "layers": _layers(audit),
        "blobs": gallery.blobs,
        "class_colours": list(zip(labels.names[1:], labels.colours[1:], strict=True)),
        "wrongness": [(words, colour) for _, words, colour in WRONGNESS],
    }
    return write_page(render_page("audit.html", context), out)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_audit_folder(folder: Path) -> AuditFolder:
    """Read the tables of a finished audit."""
    if not is_audit(folder):
        raise ValueError(f"not a finished audit: {folder} (it has no {_ABOUT})")
    about = _json(folder / _ABOUT)
    needed = ("format", "dataset", "classes", "colours", "ignore", "images")
    missing = [key for key in needed if not isinstance(about, dict) or key not in about]
    if missing:
        raise ValueError(f"{folder / _ABOUT} lacks {', '.join(missing)}")
    if about["format"] != FORMAT:
        raise ValueError(f"{folder / _ABOUT}: audit of another version (format {about['format']!r})")
    try:
        colours = tuple(tuple(colour) for colour in about["colours"])
        labels = LabelSpace(names=tuple(about["classes"]), colours=colours, ignore=about["ignore"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder / _ABOUT}: {error}") from None
    return AuditFolder(folder, about, labels, _images(folder / "images.jsonl"), _findings(folder / "issues.csv"))


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from None


def _images(file: Path) -> tuple[Mapping[str, Any], ...]:
    if not file.is_file():
        raise ValueError(f"not a finished audit: {file.parent} (it has no {file.name})")
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            row = {**row, "id": str(row["id"]), "quality": float(row["quality"])}
            row["expected_wrong"] = float(row["expected_wrong"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{file} line {number} is not an image of an audit ({error})") from None
        if any(sign in row["id"] for sign in "/\\\0") or row["id"] in ("", ".", ".."):
            raise ValueError(f"{file} line {number} names no file: {row['id']!r}")
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (row["quality"], -row["expected_wrong"], row["id"])))


def _findings(file: Path) -> dict[str, tuple[Finding, ...]]:
    if not file.is_file():
        raise ValueError(f"not a finished audit: {file.parent} (it has no {file.name})")
    found: dict[str, list[Finding]] = {}
    with file.open(newline="", encoding="utf-8") as stream:
        for number, row in enumerate(csv.DictReader(stream), start=2):
            try:
                finding = Finding(
                    region=int(float(row["region"] or 0)),
                    kind=row["kind"],
                    given=row["class_given"],
                    suggested=row["class_suggested"],
                    probability=float(row["probability"]) if row["probability"] else None,
                    pixels=int(float(row["pixels"] or 0)),
                )
                found.setdefault(row["image"], []).append(finding)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{file} line {number} is not an issue of an audit ({error})") from None
    return {name: tuple(sorted(items, key=lambda item: -item.pixels)) for name, items in found.items()}


# --- pictures --------------------------------------------------------------------------------------------------------


def _layers(audit: AuditFolder) -> list[str]:
    """Layers that this audit has; folders of older audits lack some."""
    there = [layer for layer in LABEL_LAYERS if (audit.folder / layer).is_dir()]
    return [*there, "wrongness"] if (audit.folder / "weights").is_dir() else there


def _pack(audit: AuditFolder) -> Gallery:
    gallery, layers = Gallery(), _layers(audit)
    long_side = next((side for most, side in SIZES if len(audit.images) <= most), SMALLEST)
    for rank, row in enumerate(audit.images, start=1):
        name = f"{row['id']}.png"
        try:
            size, image = small_image(audit.folder / "images" / name, long_side=long_side)
            packed: dict[str, int] = {}
            for layer in layers:
                if layer == "wrongness":
                    packed[layer] = gallery.store(_wrongness(audit, name, size))
                else:
                    ids = read_labels(audit.folder / layer / name, audit.labels, size)
                    packed[layer] = gallery.store(label_png(ids, audit.labels))
        except FileNotFoundError as error:
            raise ValueError(f"{error.filename}: missing from the audit folder") from None
        findings = audit.findings.get(row["id"], ())
        names = {name for finding in findings for name in (finding.given, finding.suggested) if name}
        entry = {
            "id": row["id"],
            "split": f"{row.get('split', '')} · rank {rank}",
            "size": size,
            "image": gallery.store(image),
            "runs": [packed],
            "wrong": round(row["expected_wrong"], 1),
            "facts": f"quality {row['quality']:.2f} · {_count(row['expected_wrong'])} wrong pixels expected",
            "kinds": sorted({finding.kind.replace("_", " ") for finding in findings}),
            "labels": [name for name in audit.labels.names if name in names],
            "findings": [_told(finding) for finding in findings[:MOST_FINDINGS]],
        }
        if len(findings) > MOST_FINDINGS:
            entry["more"] = len(findings) - MOST_FINDINGS
        gallery.entries.append(entry)
    return gallery


def _wrongness(audit: AuditFolder, name: str, size: tuple[int, int]) -> bytes:
    """Steps of the wrong-label probability: a handful of colours packs into a fraction of a smooth map."""
    with Image.open(audit.folder / "weights" / name) as picture:
        trust = np.asarray(picture.convert("L")).astype(np.float32)
    with Image.open(audit.folder / "given" / name) as picture:
        ignored = np.asarray(picture.convert("L")) == audit.labels.ignore
    wrong = np.where(ignored, 0, 255 - trust).astype(np.uint8)
    small = np.asarray(Image.fromarray(wrong).resize(size, Image.Resampling.BOX)).astype(np.float32) / 255
    steps = np.searchsorted([least for least, _, _ in WRONGNESS], small, side="right").astype(np.uint8)
    return palette_png(steps, ((0, 0, 0), *(colour for _, _, colour in WRONGNESS)))


def _told(finding: Finding) -> tuple[str, str]:
    """A finding in a few words."""
    change = " → ".join(part for part in (finding.given, finding.suggested) if part)
    if finding.kind in ("empty_mask", "class_absent", "missing"):
        change = finding.suggested
    parts = [change, f"{_count(finding.pixels)} px" if finding.pixels else ""]
    if finding.probability is not None:
        parts.append(f"{finding.probability:.0%}")
    return finding.kind.replace("_", " "), ", ".join(part for part in parts if part)


# --- numbers ---------------------------------------------------------------------------------------------------------


def _count(value: float) -> str:
    """A number of things, with thin spaces between thousands.

    >>> _count(12345.6)
    '12\u202f346'
    """
    return f"{round(value):,}".replace(",", "\u202f")


def _repairable(audit: AuditFolder) -> tuple[int, int, int]:
    """Masks with a suggested repair, regions and pixels of them."""
    regions = [[f for f in found if f.region > 0] for found in audit.findings.values()]
    pixels = sum(finding.pixels for found in regions for finding in found)
    return sum(bool(found) for found in regions), sum(map(len, regions)), pixels


def _images_with(audit: AuditFolder, kind: str) -> list[str]:
    return [name for name, found in audit.findings.items() if any(finding.kind == kind for finding in found)]


def _verdict(audit: AuditFolder) -> str:
    masks, regions, pixels = _repairable(audit)
    if not masks:
        return f"Nothing to repair with enough confidence in {_count(len(audit.images))} masks."
    return (
        f"{_count(masks)} of {_count(len(audit.images))} masks have something to repair: {_count(regions)} regions, "
        f"{_count(pixels)} pixels that another label fits with at least {audit.about.get('confidence', 0.9):.0%} "
        "probability."
    )


def _tiles(audit: AuditFolder) -> list[tuple[str, str]]:
    masks, _, _ = _repairable(audit)
    whole = sum(any(f.region == 0 for f in found) for found in audit.findings.values())
    tiles = [(_count(len(audit.images)), "masks judged"), (_count(masks), "masks with a suggested repair")]
    for key, words in (
        ("class_noise_rate", "of the pixels wrong"),
        ("affinity_noise_rate", "of the pixel pairs wrong"),
    ):
        if rate := audit.about.get(key):
            tiles.append((f"{100 * rate['value']:.2f} %", words))
    return [*tiles, (_count(whole), "masks that break a plain rule")]


def _rates(about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The two noise rates with their intervals, in percent, on one scale."""
    wanted = (("class_noise_rate", "wrong pixels"), ("affinity_noise_rate", "wrong pixel pairs"))
    rates = [(words, {k: 100 * v for k, v in about[key].items()}) for key, words in wanted if about.get(key)]
    longest = max((rate["high"] for _, rate in rates), default=0) * 1.15 or 1
    return [
        {"name": words, **rate, **{f"{k}_at": 100 * rate[k] / longest for k in ("low", "value", "high")}}
        for words, rate in rates
    ]


def _classes(about: Mapping[str, Any], labels: LabelSpace) -> list[dict[str, Any]]:
    """Per class: labelled pixels, which of them are wrong, which are missing, and the expected Jaccard index."""
    pixels = about.get("expected_pixels")
    if not pixels:
        return []
    rows = []
    for number, name in enumerate(labels.names):
        right, given = pixels[number][number], sum(row[number] for row in pixels)
        true = sum(pixels[number])
        others = {labels.names[c]: pixels[c][number] + pixels[number][c] for c in range(len(pixels)) if c != number}
        rival = max(others, key=lambda other: others[other]) if any(others.values()) else "–"
        rows.append(
            {
                "name": name,
                "colour": labels.colours[number],
                "given": _count(given),
                "wrong": 100 * (given - right) / given if given else None,
                "missing": 100 * (true - right) / true if true else None,
                "jac": 100 * right / (given + true - right) if given + true > right else None,
                "rival": rival,
            }
        )
    return rows


def _quality_chart(audit: AuditFolder) -> Any:
    """Quality over the rank: where the curve flattens, the bad masks end."""
    qualities = [row["quality"] for row in audit.images]
    if len(qualities) < 2:
        return None
    step = max(1, len(qualities) // 400)
    places = sorted({*range(0, len(qualities), step), len(qualities) - 1})
    points = tuple((float(place + 1), round(qualities[place], 4)) for place in places)
    note = "Worst mask first. Where the curve flattens, the suspicious masks end."
    return line_chart("Quality of the masks by rank", [Series("quality", points, 1)], x_label="rank", note=note)


def _matrices(about: Mapping[str, Any], labels: LabelSpace) -> list[dict[str, Any]]:
    wanted = (
        ("class_transition", "Class transition", "C", "Row: what a pixel is. Column: its label.", labels.names),
        (
            "affinity_transition", "Affinity transition", "A",
            "Row: true relation of two pixels. Column: relation in the mask.", ("different", "same"),
        ),
    )  # fmt: skip
    return [
        {"title": title, "symbol": symbol, "meaning": meaning, "labels": names, "values": about[key]}
        for key, title, symbol, meaning, names in wanted
        if about.get(key)
    ]


def _facts(audit: AuditFolder) -> list[tuple[str, str]]:
    about = audit.about
    how = f"{about['folds']} models, none saw the labels it judged" if about.get("folds") else "the run itself"
    seconds = about.get("seconds")
    facts: Sequence[tuple[str, Any]] = (
        ("Dataset", about["dataset"]),
        ("Data folder", about.get("data")),
        ("Splits", ", ".join(about.get("splits") or ())),
        ("Run", about.get("run")),
        ("Method", about.get("method")),
        ("Judged by", how),
        ("Confidence of a repair", about.get("confidence")),
        ("Seed", about.get("seed")),
        (
            "Time",
            None if seconds is None else f"{seconds:.0f} s, {seconds / max(len(audit.images), 1):.2f} s per image",
        ),
        ("Version", about.get("version")),
        ("Commit", (about.get("commit") or "")[:10]),
        ("Created", (about.get("created") or "")[:16].replace("T", " ")),
    )
    return [(name, str(value)) for name, value in facts if value not in (None, "")]
