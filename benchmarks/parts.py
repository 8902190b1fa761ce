"""What `grid` trains: parts (data with their noises and config) and methods; and where finished cells lie.

The three parts of the comparison, ``acdc``, ``wbc`` and ``lidc``, are trained with every method; `LOOKS` are a quick
look at other data and noises with the main ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from documents import ROOT
from phantoms import KINDS

MAIN = ("upper_bound", "baseline", "volmin", "jcas")
PEERS = (
    "raunet",
    "lwanet",
    "css",
    "mtcl",
    "sr",
    "gce",
    "sce",
    "coteaching",
    "trinet",
    "adele",
    "tloss",
    "svls",
    "affinity",
    "dar",
    "calc",
    "jcas_paper",
    "jcas_released",
    "jcas_released_64",
)
ABLATIONS_OF_THE_IMAGE = (
    "jcas_no_appearance",
    "jcas_no_screening",
    "jcas_no_refinement",
    "jcas_no_witness",
    "jcas_no_outline_bias",
)
ABLATIONS_OF_THE_PAPER = (  # with labels drawn by a habit these are jcas
    "jcas_no_affinity",
    "jcas_with_dar",
    "jcas_with_balanced_pairs",
    "jcas_no_intra",
    "jcas_no_inter",
    "jcas_no_class_correction",
    "jcas_no_affinity_correction",
    "jcas_no_consistency",
    "jcas_no_separate_refinement",
)
ABLATIONS_OF_FLIPS = (*ABLATIONS_OF_THE_PAPER, "jcas_no_neighbours", "jcas_no_robust_warmup")
ABLATIONS_OF_A_PART = {
    "acdc": ABLATIONS_OF_THE_PAPER,  # with ellipses, too, where they must score as jcas does
    "lidc": (*ABLATIONS_OF_THE_PAPER, "jcas_no_dar"),  # several readers: T_C and pairs as with flips, and DAR
}
ABLATIONS = (*ABLATIONS_OF_THE_IMAGE, *ABLATIONS_OF_FLIPS, "jcas_no_dar")
SEEDS_OF_MAIN = 3
FLIPS = ("symmetric:rate=0.5", "asymmetric:rate=0.5")
MORE_SEEDS = {  # of methods that are compared with jcas by a point or two: how many, on which noises
    "acdc": {
        "jcas_no_affinity": (3, FLIPS),
        "sr": (3, FLIPS[:1]),
        "gce": (3, FLIPS[:1]),
        "calc": (3, FLIPS[1:]),
        "tloss": (3, ("ellipse",)),
    },
    "lidc": {
        "jcas_no_affinity": (3, ("none",)),
        "jcas_paper": (3, ("none",)),
        "jcas_released": (3, ("none",)),
        "jcas_released_64": (2, ("none",)),
    },
}
LOOK = ("upper_bound", "baseline", "jcas")
NOISES = {
    "acdc": ("ellipse", *FLIPS),
    "lidc": ("none",),
}
CONFIGS = {part: ROOT / "configs" / f"{part}_small.yaml" for part in ("acdc", "wbc", "lidc")}


@dataclass(frozen=True)
class Look:
    """Other data and noises, trained in a minute or two."""

    title: str
    config: str
    epochs: int
    noises: tuple[str, ...]
    size: tuple[int, int] | None = None  # None: the config's


WIDER, NARROWER = "dilate_erode:dilate_share=1", "dilate_erode:dilate_share=0"
FLIPPED = ("symmetric", "asymmetric", "pair_flip")  # names of noises that flip pixel by pixel
LOOKS = {  # half of two classes flipped would leave nothing to learn
    # Few and small slices, many epochs: flips do more harm than in the grid, where windows of large images teach.
    "acdc300": Look("cardiac MRI, 300 slices of 80 x 80", "acdc", 40, ("ellipse", *FLIPS), (80, 80)),
    "wbc1": Look("blood cells of laboratory 1", "wbc_small", 14, ("ellipse", *FLIPS)),
    "wbc2": Look("blood cells of laboratory 2", "wbc_small", 30, ("ellipse", *FLIPS, "pair_flip:rate=0.4", WIDER)),
    "lv": Look("left ventricle", "acdc", 10, ("ellipse", "symmetric:rate=0.4", WIDER, NARROWER)),
    "heart": Look("whole heart", "acdc", 10, ("ellipse", "symmetric:rate=0.4", WIDER, NARROWER, "polygon")),
    "cell": Look(
        "white cells as a whole", "wbc_small", 30, ("ellipse", "symmetric:rate=0.4", WIDER, NARROWER, "polygon")
    ),
    "synth": Look(
        "synthetic instruments",
        "wbc_small",
        14,
        ("ellipse", *FLIPS, "pair_flip:rate=0.4", WIDER, NARROWER, "polygon"),
    ),
    "lidc4": Look("nodules, majority of readers", "lidc_small", 14, ("ellipse", "symmetric:rate=0.3", WIDER, NARROWER)),
    **{
        kind: Look(f"phantom: {kind}", "wbc_small", 20, ("ellipse", "symmetric:rate=0.3", WIDER, NARROWER))
        for kind in KINDS
    },
    # One ellipse around a tree of vessels is no label that anybody would draw.
    "vessels": Look("phantom: vessels", "wbc_small", 20, ("symmetric:rate=0.3", WIDER, NARROWER)),
    # `pip_data`: real images; data, configs and noises fixed before the first run.
    "fluorescence": Look("fluorescent nuclei", "lidc_small", 20, ("ellipse", "symmetric:rate=0.3", WIDER, NARROWER)),
    "deep": Look("deep brain", "wbc_small", 40, ("ellipse", *FLIPS, WIDER, NARROWER, "polygon")),
    "tissue": Look("brain tissue", "wbc_small", 20, (*FLIPS, "pair_flip:rate=0.4", WIDER, "polygon")),
}


def finished(work: Path, part: str, noise: str) -> dict[str, dict[int, Path]]:
    """Folders of the finished cells of a part and noise, by method and seed."""
    found: dict[str, dict[int, Path]] = {}
    if (work / part / "grid.json").is_file():
        for cell in json.loads((work / part / "grid.json").read_text(encoding="utf-8"))["cells"]:
            folder = work / part / "cells" / cell["name"]
            if cell["noise"] == noise and (folder / "results.json").is_file():
                found.setdefault(cell["method"], {})[cell["seed"]] = folder
    return found
