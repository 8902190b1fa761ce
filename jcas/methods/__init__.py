"""Methods: one file each, listed here. Adding one is a file and a line in ``METHODS``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from jcas.methods.adele import ADELE
from jcas.methods.base import Method
from jcas.methods.baseline import Baseline
from jcas.methods.coteaching import CoTeaching
from jcas.methods.css import CSS
from jcas.methods.gce import GCE
from jcas.methods.jcas import JCAS
from jcas.methods.lwanet import LWANetMethod
from jcas.methods.mtcl import MTCL
from jcas.methods.raunet import RAUNetMethod
from jcas.methods.sce import SCE
from jcas.methods.sr import SR
from jcas.methods.svls import SVLS
from jcas.methods.tloss import TLoss
from jcas.methods.trinet import TriNet
from jcas.methods.volmin import VolMin

__all__ = [
    "JCAS",
    "METHODS",
    "VARIANTS",
    "Method",
    "check_options",
    "method_class",
    "method_names",
    "method_options",
    "option_defaults",
]

METHODS: dict[str, type[Method]] = {
    # Rows of the paper's Table 1, in its order.
    "baseline": Baseline,
    "raunet": RAUNetMethod,
    "lwanet": LWANetMethod,
    "css": CSS,
    "mtcl": MTCL,
    "sr": SR,
    "volmin": VolMin,
    "jcas": JCAS,
    # What a practitioner would try first.
    "gce": GCE,
    "sce": SCE,
    "coteaching": CoTeaching,
    "trinet": TriNet,
    "adele": ADELE,
    "tloss": TLoss,
    "svls": SVLS,
}

_NO_DAR = {"intra": False, "inter": False}
_NO_CORRECTION = {"correct_class": False, "correct_affinity": False}
_NO_APPEARANCE = {"appearance": False}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # Rows of the paper's Table 1: pairs alone, pairs with DAR, pairs with both corrections. Nothing of what image and
    # neighbours say, but our reading of the rest: counted matrices, Theorem 1, reversed cosines, warm-up without pairs
    # (of DAR the loss teaches the logits, too, as in the paper).
    "affinity": ("jcas", _NO_DAR | _NO_CORRECTION | _NO_APPEARANCE),
    "dar": ("jcas", _NO_CORRECTION | _NO_APPEARANCE | {"separate_refinement": False, "dar_of_flips": True}),
    "calc": ("jcas", _NO_DAR | _NO_APPEARANCE),
    # Ablations of the paper's text. Where labels turn out to be drawn by a habit, these are jcas: T_C and pairs are not
    # used there. Half of DAR is compared with DAR, which jcas does not use on flipped labels.
    "jcas_with_dar": ("jcas", {"dar_of_flips": True}),
    "jcas_no_intra": ("jcas", {"intra": False, "dar_of_flips": True}),
    "jcas_no_inter": ("jcas", {"inter": False, "dar_of_flips": True}),
    "jcas_no_dar": ("jcas", _NO_DAR),
    "jcas_no_class_correction": ("jcas", {"correct_class": False}),
    "jcas_no_affinity_correction": ("jcas", {"correct_affinity": False}),
    "jcas_no_consistency": ("jcas", {"consistency_weight": 0.0}),
    # Our own parts, and the two other readings of the paper.
    "jcas_no_appearance": ("jcas", _NO_APPEARANCE),
    "jcas_no_screening": ("jcas", {"screening": False}),
    "jcas_no_refinement": ("jcas", {"refinement": False}),
    "jcas_no_witness": ("jcas", {"witness": False}),
    "jcas_no_outline_bias": ("jcas", {"outline_bias": False}),
    "jcas_no_neighbours": ("jcas", {"neighbours": False}),
    "jcas_no_robust_warmup": ("jcas", {"robust_warmup": False}),
    "jcas_no_separate_refinement": ("jcas", {"separate_refinement": False, "dar_of_flips": True}),
    "jcas_with_balanced_pairs": ("jcas", {"balanced_pairs": True}),
    "jcas_no_affinity": ("jcas", {"affinity": False}),
    "jcas_paper": ("jcas", {"preset": "paper"}),
    "jcas_released": ("jcas", {"preset": "released"}),
    # The released code's grids taken literally, whatever the size of the images: slow, so with pairs drawn.
    "jcas_released_64": (
        "jcas",
        {"preset": "released", "training_grid": (64, 64), "test_grid": (32, 32), "most_pairs": 1 << 16},
    ),
}
"""Name -> a method and options of it: a name for what ``--method NAME --set OPTION=VALUE`` can say too."""


def method_names() -> list[str]:
    """Every name that stands for a method, variants last."""
    return [*METHODS, *VARIANTS]


def method_class(name: str) -> type[Method]:
    """The class behind a name, or an error that names the nearest."""
    if name == "upper_bound":
        raise ValueError("upper_bound is a row of jcas benchmark; a run: --method baseline --labels clean")
    if name not in METHODS and name not in VARIANTS:
        nearest = difflib.get_close_matches(name, method_names(), n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown method {name!r}, did you mean {nearest!r}? (known: {', '.join(method_names())})")
    return METHODS[VARIANTS[name][0] if name in VARIANTS else name]


def method_options(name: str, options: Mapping[str, Any], *, epochs: int) -> dict[str, Any]:
    """All options of a run: those of the schedule, over them those of the variant, over them the given ones."""
    of_variant = VARIANTS[name][1] if name in VARIANTS else {}
    return {**method_class(name).schedule(epochs), **of_variant, **check_options(name, options)}


def option_defaults(name: str) -> dict[str, Any]:
    """Every option of a method with the default of its constructor."""
    parameters = inspect.signature(method_class(name).__init__).parameters.values()
    return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as their types; each must be a keyword of the method's constructor and fit its annotation."""
    known, hints = list(option_defaults(name)), get_type_hints(method_class(name).__init__)
    checked = {}
    for option, value in options.items():
        if option not in known:
            nearest = difflib.get_close_matches(option, known, n=1, cutoff=0.0)
            hint = f", did you mean {nearest[0]!r}?" if nearest else ": it has none"
            raise ValueError(f"method {name!r} has no option {option!r}{hint}")
        adapter: TypeAdapter[Any] = TypeAdapter(hints.get(option, Any), config=ConfigDict(allow_inf_nan=False))
        try:
            checked[option] = adapter.validate_python(value)
        except ValidationError as error:
            raise ValueError(f"method {name!r}: {option}: {error.errors()[0]['msg']} (got {value!r})") from None
    return checked
