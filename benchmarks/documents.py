"""Tables in documents are written by the benchmarks that measured them, never by hand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_section(document: str, name: str, content: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->`` in a document of the project."""
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{document} has no section {name}")
    path.write_text(pattern.sub(lambda found: found[1] + content.strip() + "\n" + found[2], text), encoding="utf-8")


def read_section(document: str, name: str) -> str:
    """What stands between ``<!-- name -->`` and ``<!-- /name -->`` in a document of the project."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(name)} -->\n(.*?)<!-- /{re.escape(name)} -->", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{document} has no section {name}")
    return found[1].strip()


def commit() -> str:
    """The commit that is measured; ``+`` marks uncommitted changes of the package."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
