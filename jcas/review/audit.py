"""The folder that `jcas audit` leaves behind, as the review reads it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

FORMAT = "1"
LABEL_LAYERS = ("given", "repaired")
LAYERS = ("images", *LABEL_LAYERS, "regions", "wrongness")
MOST_CLASSES = 254
"""Label 254 marks unpainted pixels of a painted layer and 255 ignored ones, so classes end at 253."""

_ISSUE_COLUMNS = {
    "image", "region", "kind", "class_given", "class_suggested", "probability", "top", "left", "bottom", "right",
    "pixels",
}  # fmt: skip


@dataclass(frozen=True)
class Issue:
    """One thing that the audit found wrong with a mask; region 0 means the whole image."""

    region: int
    kind: str
    given: str
    suggested: str
    probability: float | None
    box: tuple[int, int, int, int]  # top, left, bottom, right
    pixels: int


@dataclass(frozen=True)
class AuditedImage:
    """One image of the audit; its number is its place in ``images.jsonl``."""

    number: int
    id: str
    split: str
    group: str
    height: int
    width: int
    quality: float
    expected_wrong: float
    per_class: Mapping[str, Mapping[str, Any]]
    given_sha256: str
    issues: tuple[Issue, ...] = ()

    @property
    def regions(self) -> frozenset[int]:
        """Numbers of the regions that can be accepted or rejected one by one."""
        return frozenset(issue.region for issue in self.issues if issue.region > 0)


@dataclass(frozen=True)
class Audit:
    """A whole audit folder; pictures are read when asked for."""

    root: Path
    created: str
    dataset: str
    data: str  # where the audited dataset lies, as the audit was told
    classes: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]
    ignore: int
    images: tuple[AuditedImage, ...]

    def file(self, layer: str, image: AuditedImage) -> Path:
        """The picture of one layer; a link that leads out of the audit folder is refused."""
        if layer not in LAYERS:
            raise ValueError(f"unknown layer {layer!r}, choose one of {', '.join(LAYERS)}")
        path = self.root / layer / f"{image.id}.png"
        if not path.resolve().is_relative_to(self.root):
            raise ValueError(f"{path}: leads out of the audit folder")
        return path

    def labels(self, layer: str, image: AuditedImage) -> NDArray[np.uint8]:
        """Label ids as given or as repaired, (H, W)."""
        if layer not in LABEL_LAYERS:
            raise ValueError(f"{layer!r} holds no labels, choose one of {', '.join(LABEL_LAYERS)}")
        return _read(self.file(layer, image), image, ("L", "P")).astype(np.uint8)

    def region_map(self, image: AuditedImage) -> NDArray[np.uint16]:
        """The number of the region that each pixel belongs to, 0 for none, (H, W)."""
        return _read(self.file("regions", image), image, ("I;16", "I", "L")).astype(np.uint16)

    def wrongness(self, image: AuditedImage) -> NDArray[np.uint8] | None:
        """How likely each label is wrong, 0..255, (H, W); None where the audit wrote no heat maps."""
        path = self.file("wrongness", image)
        return _read(path, image, ("L",)).astype(np.uint8) if path.is_file() else None


def read_audit(path: Path | str) -> Audit:
    """Read an audit folder; no picture is opened yet."""
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    root = root.resolve()
    about = _read_about(root / "audit.json")
    issues = _read_issues(root / "issues.csv")
    images = _read_images(root / "images.jsonl", issues)
    if not images:
        raise ValueError(f"{root / 'images.jsonl'}: no images")
    return Audit(
        root=root,
        created=str(about["created"]),
        dataset=str(about["dataset"]),
        data=str(about["data"]),
        classes=tuple(map(str, about["classes"])),
        colours=tuple((int(r), int(g), int(b)) for r, g, b in about["colours"]),
        ignore=int(about["ignore"]),
        images=images,
    )


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a finished audit folder (no {path.name}; `jcas audit` writes one)")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    needed = ("format", "created", "dataset", "data", "classes", "colours", "ignore")
    missing = [key for key in needed if not isinstance(about, dict) or key not in about]
    if missing:
        raise ValueError(f"{path}: not an audit (no {missing[0]!r})")
    if about["format"] != FORMAT:
        raise ValueError(f"{path}: audit of another version (format {about['format']!r}, this one reads {FORMAT!r})")
    if len(about["classes"]) > MOST_CLASSES:
        raise ValueError(f"{path}: {len(about['classes'])} classes, the review can show {MOST_CLASSES}")
    return about


def _read_issues(path: Path) -> dict[str, list[Issue]]:
    found: dict[str, list[Issue]] = {}
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a finished audit folder (no {path.name})")
    with path.open(newline="", encoding="utf-8") as stream:
        table = csv.DictReader(stream)
        missing = _ISSUE_COLUMNS - set(table.fieldnames or ())
        if missing:
            raise ValueError(f"{path}: no column {min(missing)!r}")
        for row in table:
            try:
                top, left, bottom, right = (_number(row[side]) for side in ("top", "left", "bottom", "right"))
                issue = Issue(
                    region=_number(row["region"]),
                    kind=row["kind"],
                    given=row["class_given"],
                    suggested=row["class_suggested"],
                    probability=float(row["probability"]) if row["probability"] else None,
                    box=(top, left, bottom, right),
                    pixels=_number(row["pixels"]),
                )
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {table.line_num}: {error}") from None
            found.setdefault(row["image"], []).append(issue)
    return found


def _number(text: str) -> int:
    """A whole number; an issue of the whole image leaves box and pixels empty."""
    return int(float(text)) if text else 0


def _read_images(path: Path, issues: Mapping[str, list[Issue]]) -> tuple[AuditedImage, ...]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a finished audit folder (no {path.name})")
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            _expect_plain_name(str(row["id"]))
            rows[str(row["id"])] = row
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: not an image of an audit ({error})") from None
    try:
        return tuple(_image(number, row, issues) for number, row in enumerate(rows.values()))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the images of an audit ({error})") from None


def _image(number: int, row: Mapping[str, Any], issues: Mapping[str, list[Issue]]) -> AuditedImage:
    return AuditedImage(
        number=number,
        id=str(row["id"]),
        split=str(row["split"]),
        group=str(row["group"]),
        height=int(row["height"]),
        width=int(row["width"]),
        quality=float(row["quality"]),
        expected_wrong=float(row["expected_wrong"]),
        per_class=dict(row.get("per_class") or {}),
        given_sha256=str(row["given_sha256"]),
        issues=tuple(issues.get(str(row["id"]), ())),
    )


def _expect_plain_name(name: str) -> None:
    """An id is a file name of this folder and nothing else."""
    if not name or name in (".", "..") or any(sign in name for sign in "/\\\0"):
        raise ValueError(f"{name!r} is no file name")


def _read(path: Path, image: AuditedImage, modes: tuple[str, ...]) -> NDArray[Any]:
    try:
        with Image.open(path) as picture:
            if picture.mode not in modes:
                raise ValueError(f"{path}: expected one channel, got a picture of mode {picture.mode}")
            pixels = np.array(picture)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: missing from the audit folder") from None
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    if pixels.shape != (image.height, image.width):
        raise ValueError(f"{path}: size {pixels.shape}, but images.jsonl says {(image.height, image.width)}")
    return pixels
