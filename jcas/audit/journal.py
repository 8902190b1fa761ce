"""The audit folder while it grows: one line per judged image, so that a killed audit goes on where it stopped."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from jcas.audit.regions import Issue
from jcas.data import files
from jcas.run import write_bytes, write_json
from jcas.schema import LabelSpace

LAYERS = ("images", "given", "predicted", "repaired", "regions", "weights")
COLUMNS = (
    "image", "region", "kind", "class_given", "class_suggested", "probability", "top", "left", "bottom", "right",
    "pixels",
)  # fmt: skip
_KIND = [field.name for field in fields(Issue)].index("kind")


class Journal:
    """What is known of the images judged so far, on disk in ``OUT/.audit/`` until the audit is finished.

    A line of ``journal.jsonl`` is written after all pictures of its image, so an image is judged or it is not. Salt and
    pepper makes thousands of issues an image: they stay on disk, and memory holds where.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any], *, print_bytes: int) -> None:
        self.out = out
        self.settings = dict(settings)
        self.print_bytes = print_bytes
        self.work = out / ".audit"
        self.lines: list[dict[str, Any]] = []  # all but the issues
        self.kinds: Counter[str] = Counter()
        self._end = 0

    @property
    def _journal(self) -> Path:
        return self.work / "journal.jsonl"

    def open(self) -> None:
        """Start, or continue the same audit; another one in the folder is an error."""
        if (self.out / "audit.json").exists():
            raise ValueError(f"{self.out}: holds a finished audit; choose another --out")
        stored = self.work / "settings.json"
        if stored.is_file():
            before = json.loads(stored.read_text(encoding="utf-8"))
            changed = [key for key in self.settings if before.get(key) != self.settings[key]]
            if changed:
                key = changed[0]
                raise ValueError(
                    f"{self.out}: unfinished audit with {key} = {before.get(key)!r}, now {self.settings[key]!r}; "
                    "choose another --out"
                )
        elif self.out.exists() and any(self.out.iterdir()):
            raise ValueError(f"{self.out}: exists and is not an audit; choose another --out")
        for layer in LAYERS:
            (self.out / layer).mkdir(parents=True, exist_ok=True)
        write_json(stored, self.settings)
        self._recover()

    def _recover(self) -> None:
        prints = self.work / "fingerprints.bin"
        self._journal.touch()
        with self._journal.open("rb+") as file:
            for text in file:
                if text.endswith(b"\n"):  # a kill may have cut the last line
                    self._remember(json.loads(text), len(text))
            file.truncate(self._end)
        stored = prints.read_bytes() if prints.is_file() else b""
        write_bytes(prints, stored[: len(self.lines) * self.print_bytes])
        write_bytes(self.out / "images.jsonl", _jsonl(line["image"] for line in self.lines))

    def _remember(self, line: dict[str, Any], length: int) -> None:
        issues = line.pop("issues")
        self.kinds.update(values[_KIND] for values in issues)
        self.lines.append({**line, "issues": len(issues), "at": self._end})
        self._end += length

    def issues(self, line: Mapping[str, Any]) -> list[Issue]:
        """The issues of one of the ``lines``, from the disk."""
        with self._journal.open("rb") as file:
            file.seek(line["at"])
            return [_issue(*values) for values in json.loads(file.readline())["issues"]]

    def done(self) -> dict[str, str]:
        """Images judged so far: id and hash of the mask."""
        return {line["image"]["id"]: line["image"]["given_sha256"] for line in self.lines}

    def add(
        self,
        image: dict[str, Any],
        joint: NDArray[np.float64],
        issues: Sequence[Issue],
        mark: NDArray[np.uint8],
        *,
        seconds: float,
    ) -> None:
        """Enter one judged image whose pictures are written, and how long it took."""
        found = [astuple(issue) for issue in issues]
        line = {"image": image, "joint": joint.tolist(), "issues": found, "seconds": round(seconds, 4)}
        _append(self.work / "fingerprints.bin", mark.tobytes())
        _append(self.out / "images.jsonl", _jsonl([image]))
        text = _jsonl([line])
        _append(self._journal, text)
        self._remember(json.loads(text), len(text))

    def fingerprints(self) -> NDArray[np.uint8]:  # (images, bytes), on disk
        """Thumbnails of all images, read as they are needed."""
        if not self.lines:
            return np.zeros((0, self.print_bytes), dtype=np.uint8)
        return np.memmap(self.work / "fingerprints.bin", dtype=np.uint8, mode="r").reshape(-1, self.print_bytes)

    def finish(self, about: dict[str, Any], more: Mapping[str, Sequence[Issue]], labels: LabelSpace) -> None:
        """Write the tables, worst image first, with ``more`` issues of whole images; ``audit.json`` comes last."""

        def rank(line: dict[str, Any]) -> tuple[float, float, str]:
            return line["image"]["quality"], -line["image"]["expected_wrong"], line["image"]["id"]

        ranked = sorted(self.lines, key=rank)
        for line in ranked:
            line["image"]["issues"] = line["issues"] + len(more.get(line["image"]["id"], ()))
        write_bytes(self.out / "images.jsonl", _jsonl(line["image"] for line in ranked))
        partial = self.work / "issues.csv"
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for line in ranked:
                name = line["image"]["id"]
                writer.writerows(_row(name, issue, labels) for issue in [*self.issues(line), *more.get(name, ())])
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.out / "issues.csv")
        write_json(self.out / "audit.json", about)
        shutil.rmtree(self.work)


def _issue(
    region: int, kind: str, given: int, suggested: int, probability: float, box: list[int], pixels: int
) -> Issue:
    top, left, bottom, right = box
    return Issue(region, kind, given, suggested, probability, (top, left, bottom, right), pixels)


def _row(name: str, issue: Issue, labels: LabelSpace) -> list[Any]:
    names = [labels.names[c] if c >= 0 else "" for c in (issue.given, issue.suggested)]
    return [name, issue.region, issue.kind, *names, f"{issue.probability:.4f}", *issue.box, issue.pixels]


def write_regions(path: Path, regions: NDArray[np.uint16]) -> None:
    """Write region numbers as a 16-bit PNG, whole or not at all."""
    buffer = io.BytesIO()
    Image.fromarray(regions).save(buffer, format="PNG")
    write_bytes(path, buffer.getvalue())


def mask_hash(given: NDArray[np.uint8]) -> str:
    """Tells whether a mask is still the one that was judged."""
    return hashlib.sha256(np.ascontiguousarray(given).tobytes()).hexdigest()


def read_layer(out: Path, layer: str, name: str) -> NDArray[np.uint8]:
    """One picture of an audit folder as labels."""
    return files.read_mask(out / layer / f"{name}.png").numpy().astype(np.uint8)


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _jsonl(values: Any) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()
