"""Label noise: ``noise(mask, rng) -> mask``, deterministic per (seed, image id) through `rng_for`.

>>> import numpy as np
>>> mask = np.zeros((4, 4), np.uint8)
>>> NOISES["symmetric"](num_classes=2, rate=0.5)(mask, rng_for(0, "image-1")).shape
(4, 4)
"""

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from jcas.noise.base import Noise, rng_for
from jcas.noise.boundary import DilateErode, Markov, Polygon
from jcas.noise.ellipse import Ellipse
from jcas.noise.flip import Asymmetric, Matrix, PairFlip, Symmetric
from jcas.noise.sfda import SFDA

NOISES: dict[str, type[Noise]] = {
    "symmetric": Symmetric,
    "asymmetric": Asymmetric,
    "pair_flip": PairFlip,
    "matrix": Matrix,
    "ellipse": Ellipse,
    "dilate_erode": DilateErode,
    "markov": Markov,
    "polygon": Polygon,
    "sfda": SFDA,
}
"""Every noise by its name; to add one, write its file and its line here."""


def make_noise(name: str, *, num_classes: int, parameters: Mapping[str, Any] | None = None) -> Noise:
    """A noise from its name and its settings as JSON or a command line give them (lists for tuples, text for numbers).

    >>> make_noise("symmetric", num_classes=4, parameters={"rate": "0.3"})
    Symmetric(num_classes=4, rate=0.3)
    """
    if name not in NOISES:
        raise ValueError(f"unknown noise {name!r}{_nearest(name, list(NOISES))}")
    noise_class = NOISES[name]
    types = get_type_hints(noise_class)
    known = {field.name: field for field in fields(noise_class) if field.name != "num_classes"}
    values: dict[str, Any] = {}
    for key, value in (parameters or {}).items():
        if key not in known:
            raise ValueError(f"noise {name!r} has no parameter {key!r}{_nearest(key, list(known))}")
        try:
            values[key] = TypeAdapter(types[key]).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"noise {name!r}: {key}: {error.errors()[0]['msg']}, got {value!r}") from error
    for key, field in known.items():
        if field.default is MISSING and key not in values:
            raise ValueError(f"noise {name!r} needs the parameter {key!r}")
    return noise_class(num_classes=num_classes, **values)


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {close[0]!r}?" if close else f", choose one of {', '.join(known)}"


__all__ = [
    "NOISES",
    "SFDA",
    "Asymmetric",
    "DilateErode",
    "Ellipse",
    "Markov",
    "Matrix",
    "Noise",
    "PairFlip",
    "Polygon",
    "Symmetric",
    "make_noise",
    "rng_for",
]
