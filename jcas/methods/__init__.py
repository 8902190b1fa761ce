"""Methods: one file each, listed here. Adding one is a file and a line in ``METHODS``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from jcas.methods.base import Method
from jcas.methods.baseline import Baseline
from jcas.methods.jcas import JCAS
from jcas.methods.volmin import VolMin

__all__ = ["JCAS", "METHODS", "Baseline", "Method", "VolMin", "check_options", "method_class"]

METHODS: dict[str, type[Method]] = {
    "baseline": Baseline,
    "volmin": VolMin,
    "jcas": JCAS,
}


def method_class(name: str) -> type[Method]:
    """The class registered under a name, or an error that names the nearest."""
    if name not in METHODS:
        nearest = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown method {name!r}, did you mean {nearest!r}? (known: {', '.join(METHODS)})")
    return METHODS[name]


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Every option must be a keyword of the method's constructor."""
    parameters = inspect.signature(method_class(name).__init__).parameters
    known = [key for key, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            nearest = difflib.get_close_matches(option, known, n=1, cutoff=0.0)
            hint = f", did you mean {nearest[0]!r}?" if nearest else ": it has none"
            raise ValueError(f"method {name!r} has no option {option!r}{hint}")
