"""``dataset.yaml``: a strict, optional file of keys beside the data; a wrong key is answered with the nearest one."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

Keys = TypeVar("Keys", bound=BaseModel)


def read_description(path: Path, kind: type[Keys]) -> Keys:
    """The file as ``kind``, which knows the keys of one layout; all defaults where there is no file."""
    if not path.exists():
        return kind()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict | None):
        raise ValueError(f"{path}: must hold keys and values, got {type(content).__name__}")
    try:
        return kind.model_validate(content or {})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] != "extra_forbidden":
            raise ValueError(f"{path}: {key}: {first['msg']}, got {first['input']!r}") from error
        known = list(kind.model_fields)
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"
        raise ValueError(f"{path}: unknown key {key!r}, {hint}") from error
