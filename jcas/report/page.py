"""Templates of this folder, filled and written as one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_HERE = Path(__file__).parent


def render_page(template: str, context: Mapping[str, Any]) -> str:
    """Fill a template; style and script are put into the page.

    The page's security policy lets exactly our script run and forbids every request, so a hostile file name can do
    nothing even if an escape were forgotten.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(percent=percent, duration=duration, embed=embed_json, json=json.dumps)
    script = (_HERE / "report.js").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        **context,
        style=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
    )


def write_page(html: str, out: Path) -> Path:
    """Write the page in one step: a reader never sees half a file."""
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    partial.write_text(html, encoding="utf-8", newline="\n")
    os.replace(partial, out)
    return out


def embed_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: no text can close the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def percent(value: float | None) -> str:
    """Two decimals; a dash where there is nothing to score.

    >>> percent(80.1), percent(None)
    ('80.10', '–')
    """
    return "–" if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Time as people say it.

    >>> duration(70.2), duration(7322), duration(8.04)
    ('1 min 10 s', '2 h 2 min', '8.0 s')
    """
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
