"""What people decided, safe against kill -9: one line per decision, flushed to the disk before anyone is told.

``decisions.jsonl`` in the audit folder only ever grows. The state of an image is its lines played back in order, so
undo works in the next session too. A painted layer is a file of its own under ``painted/``, whole on the disk before
the line that names it. Each decision must name the revision of the image that the person saw; if another tab was
faster, `StaleRevisionError` is raised and nothing is written.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from jcas.review.audit import Audit, AuditedImage

LOG = "decisions.jsonl"
FORMAT = "1"
UNPAINTED = 254
"""In a painted layer: nobody painted here."""

Action = Literal["accept", "reject", "accept_region", "reject_region", "clear_region", "untrusted", "trusted", "undo"]
Status = Literal["open", "partly", "accepted", "rejected", "edited", "untrusted"]
_PAINTED_NAME = re.compile(r"[0-9a-f]{16}-[0-9]+\.png")


class StaleRevisionError(ValueError):
    """The image has changed since the person looked at it."""


@dataclass(frozen=True)
class State:
    """All decisions about one image."""

    verdict: bool | None = None  # of the whole repair: accepted, rejected, or nothing said
    regions: Mapping[int, bool] = field(default_factory=dict)  # said of single regions; these win over the verdict
    untrusted: bool = False
    painted: str | None = None  # file name in painted/; painted pixels win over everything

    def accepts(self, region: int) -> bool | None:
        """Whether the repair of a region is accepted; None while undecided."""
        return self.regions.get(region, self.verdict)


def status(state: State, regions: Iterable[int]) -> Status:
    """Where an image stands; all but ``open`` and ``partly`` count as reviewed.

    >>> status(State(regions={1: True}), [1, 2]), status(State(regions={1: True}), [1])
    ('partly', 'accepted')
    """
    if state.untrusted:
        return "untrusted"
    answers = {state.accepts(region) for region in regions} or {state.verdict}
    if None in answers:
        # A painted image without regions has nothing else to decide.
        if state.painted and not set(regions):
            return "edited"
        return "partly" if state.painted or answers != {None} else "open"
    if state.painted or len(answers) > 1:
        return "edited"
    return "accepted" if True in answers else "rejected"


def open_decisions(audit: Audit, *, write: bool) -> Decisions:
    """Read the decisions about an audit; with ``write`` also take the log, for this process alone, to add to it."""
    decisions = Decisions(audit)
    if write:
        decisions.record()
    else:
        decisions.read()
    return decisions


class Decisions:
    """The decisions about all images of one audit; see `open_decisions`."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._path = audit.root / LOG
        self._histories: dict[str, list[State]] = {}
        self._revisions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._log: int | None = None

    def record(self) -> None:
        """Take the log, read it, and cut off a line that a crash tore."""
        _expect_inside(self._audit.root, self._path)
        _expect_inside(self._audit.root, self._audit.root / "painted")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        log = os.open(self._path, flags, 0o644)
        try:
            _take(log, self._path)
            os.ftruncate(log, self.read())
            (self._audit.root / "painted").mkdir(exist_ok=True)
            self._log = log
            if os.fstat(log).st_size == 0:
                self._append({"format": FORMAT, "audit": self._audit.created})
                _flush_folder(self._audit.root)
        except BaseException:
            os.close(log)
            self._log = None
            raise

    def read(self) -> int:
        """Play the log back; returns the length of its whole lines (a crash may have torn the last one)."""
        _expect_inside(self._audit.root, self._path)
        if not self._path.is_file():
            return 0
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                line = json.loads(text)
                if number > 1:
                    self._play(line)
                elif line["format"] != FORMAT:
                    raise ValueError(f"format {line['format']!r}, this version reads {FORMAT!r}")
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ValueError(f"{self._path}, line {number}: damaged ({error})") from None
            if number == 1 and line["audit"] != self._audit.created:
                raise ValueError(
                    f"{self._path}: decisions about another audit (of {line['audit']}, this one is of "
                    f"{self._audit.created}); move the file away to start anew"
                )
        return len(whole)

    def close(self) -> None:
        """Let go of the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def state(self, image: AuditedImage) -> State:
        """What holds for an image now."""
        return self._histories.get(image.id, [State()])[-1]

    def revision(self, image: AuditedImage) -> int:
        """How many decisions the image has seen, undone ones included."""
        return self._revisions.get(image.id, 0)

    def can_undo(self, image: AuditedImage) -> bool:
        """Whether there is a decision to take back."""
        return len(self._histories.get(image.id, ())) > 1

    def decide(self, image: AuditedImage, action: Action, *, revision: int, region: int | None = None) -> None:
        """Write one decision down."""
        if action.endswith("_region") != (region is not None):
            raise ValueError(f"{action} {'needs' if region is None else 'takes no'} region")
        if region is not None and region not in image.regions:
            raise ValueError(f"{image.id}: no region {region}")
        with self._lock:
            self._expect(image, revision)
            if action == "undo" and not self.can_undo(image):
                raise ValueError(f"{image.id}: nothing to undo")
            line: dict[str, Any] = {"image": image.id, "revision": revision + 1, "action": action}
            self._commit(line if region is None else line | {"region": region})

    def paint(self, image: AuditedImage, patch: NDArray[np.uint8], *, top: int, left: int, revision: int) -> None:
        """Lay a painted rectangle over the image; its 254 pixels leave what is below them."""
        height, width = patch.shape
        if top < 0 or left < 0 or top + height > image.height or left + width > image.width or not patch.size:
            raise ValueError(f"{image.id}: the painted rectangle does not lie in the image")
        allowed = {*range(len(self._audit.classes)), self._audit.ignore, UNPAINTED}
        wrong = set(np.unique(patch).tolist()) - allowed
        if wrong:
            raise ValueError(f"{image.id}: {min(wrong)} is no class")
        with self._lock:
            self._expect(image, revision)
            layer = self.painted(image)
            if layer is None:
                layer = np.full((image.height, image.width), UNPAINTED, np.uint8)
            part = layer[top : top + height, left : left + width]
            part[patch != UNPAINTED] = patch[patch != UNPAINTED]
            name = f"{hashlib.sha256(image.id.encode()).hexdigest()[:16]}-{revision + 1}.png"
            stream = io.BytesIO()
            Image.fromarray(layer).save(stream, "PNG", compress_level=1)
            _expect_inside(self._audit.root, self._audit.root / "painted")
            write_whole(self._audit.root / "painted" / name, stream.getvalue())
            self._commit({"image": image.id, "revision": revision + 1, "action": "paint", "painted": name})

    def painted(self, image: AuditedImage) -> NDArray[np.uint8] | None:
        """The painted layer, (H, W), 254 where nothing is painted; None before the first stroke."""
        name = self.state(image).painted
        if name is None:
            return None
        path = self._audit.root / "painted" / name
        _expect_inside(self._audit.root, path)
        with Image.open(path) as picture:
            layer = np.array(picture)
        if layer.shape != (image.height, image.width) or layer.dtype != np.uint8:
            raise ValueError(f"{path}: not a painted layer of {image.id}")
        return layer

    def result(self, image: AuditedImage) -> NDArray[np.uint8]:
        """The corrected mask: as given, with the accepted regions repaired and the painted pixels on top."""
        state = self.state(image)
        mask = self._audit.labels("given", image)
        regions = self._audit.region_map(image)
        accepted = np.full(int(regions.max()) + 1, state.verdict is True)
        for region, accept in state.regions.items():
            if region < accepted.size:
                accepted[region] = accept
        accepted[0] = False
        change = accepted[regions]
        mask[change] = self._audit.labels("repaired", image)[change]
        layer = self.painted(image)
        if layer is not None:
            mask[layer != UNPAINTED] = layer[layer != UNPAINTED]
        return mask

    def _expect(self, image: AuditedImage, revision: int) -> None:
        if revision != self.revision(image):
            raise StaleRevisionError(f"{image.id}: changed meanwhile (revision {self.revision(image)}, not {revision})")

    def _commit(self, line: dict[str, Any]) -> None:
        line["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._append(line)
        self._play(line)

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._log is None:
            raise ValueError(f"{self._path}: not opened for writing")
        content = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        before = os.fstat(self._log).st_size
        try:
            while content:
                content = content[os.write(self._log, content) :]
            os.fsync(self._log)
        except OSError:
            os.ftruncate(self._log, before)  # a full disk must not leave half a line that hides the next one
            raise

    def _play(self, line: Mapping[str, Any]) -> None:
        name, action = line["image"], line["action"]
        history = self._histories.setdefault(name, [State()])
        if action == "undo":
            history.pop()
        else:
            history.append(_after(history[-1], action, line))
        if not history or line["revision"] != self._revisions.get(name, 0) + 1:
            raise ValueError(f"revision {line['revision']} does not follow")
        self._revisions[name] = line["revision"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, on the disk when this returns."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # mkstemp makes files private
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _after(state: State, action: str, line: Mapping[str, Any]) -> State:
    if action in ("accept", "reject"):
        return replace(state, verdict=action == "accept", regions={})
    if action in ("accept_region", "reject_region"):
        return replace(state, regions={**state.regions, int(line["region"]): action == "accept_region"})
    if action == "clear_region":
        return replace(state, regions={k: v for k, v in state.regions.items() if k != line["region"]})
    if action in ("untrusted", "trusted"):
        return replace(state, untrusted=action == "untrusted")
    if action == "paint" and _PAINTED_NAME.fullmatch(line["painted"]):
        return replace(state, painted=line["painted"])
    raise ValueError(f"unknown action {action!r}")


def _expect_inside(root: Path, path: Path) -> None:
    """Refuse links out of the audit folder, and any link in place of the file itself: others could turn it around."""
    if not path.resolve().is_relative_to(root):
        raise ValueError(f"{path}: leads out of the audit folder")
    if path.is_symlink():
        raise ValueError(f"{path}: is a link, not a file or folder of its own")


def _take(log: int, path: Path) -> None:
    """Refuse a second writer: two servers would not see each other's revisions."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(f"{path.parent}: another `jcas review` of this folder is running") from None


def _flush_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
