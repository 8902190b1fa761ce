"""A method's card, the docstring of its class, as a terminal can show it."""

from __future__ import annotations

import inspect
import re
import unicodedata

from jcas.methods.base import Method

_SIGNS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "lambda": "λ",
    "mu": "μ",
    "rho": "ρ",
    "sum": "Σ",
    "tau": "τ",
}
_ACCENTS = {"bar": "\u0304", "hat": "\u0302", "tilde": "\u0303"}  # they stand behind their letter


def readable_formula(tex: str) -> str:
    r"""A formula without TeX, as far as one line of text can say it.

    >>> readable_formula(r"L = -\frac1K \sum_k \log P_{\tilde Y(k)}, \qquad \lambda_e = \sqrt{\rho}\,e^{-5 t}")
    'L = -1/K Σ_k log P_(Ỹ(k)), λ_e = √(ρ) e^(-5 t)'
    """
    tex = re.sub(r"\\t?frac(\w)(\w)", r"\1/\2", tex)
    tex = re.sub(r"\\(bar|hat|tilde) (\w)", lambda found: found[2] + _ACCENTS[found[1]], tex)
    tex = re.sub(r"\\text\{([^{}]*)\}|_\{(\w+)\}", lambda found: found[1] or f"_{found[2]}", tex)
    tex = re.sub(r"([_^])\{([^{}]*)\}", r"\1(\2)", tex)
    tex = re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", tex)
    tex = re.sub(r"\\(q?quad|[,;])", " ", tex).replace(r"\|", "‖")
    tex = re.sub(r"\\([A-Za-z]+)", lambda found: _SIGNS.get(found[1], found[1]), tex)
    return unicodedata.normalize("NFC", " ".join(tex.split()))


def card_paragraphs(cls: type[Method]) -> list[str]:
    """The card in paragraphs of one line each, formulas indented; names in backticks."""
    paragraphs = []
    for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
        text = " ".join(paragraph.split())
        if text.startswith(".. math::"):
            paragraphs.append("    " + readable_formula(text.removeprefix(".. math::")))
            continue
        text = re.sub(r":math:`([^`]*)`", lambda found: readable_formula(found[1]), text)
        paragraphs.append(text.replace("``", "`"))
    return paragraphs
