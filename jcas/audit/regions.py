"""From changed pixels to regions that a person can judge: what should go, what is missing, what has moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label as label_areas

from jcas.schema import IGNORE

Labels = NDArray[np.uint8]  # (H, W), 255 = ignore
Map = NDArray[np.float32]  # (H, W)
Box = tuple[int, int, int, int]  # top, left, bottom, right; bottom and right are the first row and column outside

KINDS = (
    "superfluous", "missing", "wrong_class", "wrong_outline", "empty_mask", "stray_component", "hole", "class_absent",
    "mismatched_pair", "duplicate_conflict",
)  # fmt: skip

SPECK = 5
"""Smaller regions of one kind of change are pooled into one: thousands of single pixels are one finding."""

WHOLE = 0.5
"""A change that takes or makes at least this share of an object is about the object, else about its outline."""

_MOST_REGIONS = 60_000  # of the 65,535 that a 16-bit picture holds


@dataclass(frozen=True)
class Issue:
    """One finding; ``region`` 0 speaks of the whole image."""

    region: int
    kind: str
    given: int  # class ids; -1: none in particular
    suggested: int
    probability: float
    box: Box
    pixels: int


@dataclass(frozen=True)
class Components:
    """Connected areas of equal foreground label, numbered from 1."""

    numbers: NDArray[np.int32]  # (H, W), 0 = background or ignored
    sizes: NDArray[np.int64]  # (n + 1,), that of number 0 is 0
    classes: NDArray[np.int64]  # (n + 1,)


def components(mask: Labels) -> Components:
    """The connected areas of a mask, diagonal neighbours included."""
    numbers = connected(np.where(mask == IGNORE, 0, mask))
    sizes = np.bincount(numbers.ravel())
    classes = np.zeros(len(sizes), dtype=np.int64)
    classes[numbers.ravel()] = mask.ravel()
    sizes[0] = classes[0] = 0
    return Components(numbers, sizes, classes)


def connected(values: NDArray[Any]) -> NDArray[np.int32]:
    """Number the connected areas of equal value from 1, diagonal neighbours included; 0 stays 0."""
    return label_areas(values, background=0, connectivity=2).astype(np.int32, copy=False)


def find_regions(given: Labels, repaired: Labels, probability: Map) -> tuple[NDArray[np.uint16], list[Issue]]:
    """Number the changed pixels by region and say what each region is about.

    Args:
        given: the mask as it was.
        repaired: the mask as suggested.
        probability: of the suggested label, per pixel.

    Returns:
        The region number of each changed pixel (0 elsewhere), and one issue per region.
    """
    changed = given != repaired
    if not changed.any():
        return np.zeros(given.shape, dtype=np.uint16), []
    taken = _changed_share(components(given), changed)
    made = _changed_share(components(repaired), changed)
    pairs = np.where(changed, given.astype(np.int32) * 256 + repaired + 1, 0)
    areas = connected(pairs)
    speck, count = SPECK, _MOST_REGIONS + 1
    while count > _MOST_REGIONS:
        numbers, count = _number_regions(areas, pairs, speck=speck)
        speck *= 4
    flat = numbers.ravel()
    pixels = np.bincount(flat, minlength=count + 1)
    sums = {
        name: np.bincount(flat, weights=values.ravel(), minlength=count + 1)
        for name, values in (("probability", probability), ("taken", taken), ("made", made))
    }
    issues = []
    for number, place in enumerate(ndimage.find_objects(numbers), start=1):
        row, column = (int(index[0]) for index in np.nonzero(numbers[place] == number))
        before, after = int(given[place][row, column]), int(repaired[place][row, column])
        share = sums["made" if before == 0 else "taken"][number] / pixels[number]
        issues.append(
            Issue(
                region=number,
                kind=_kind(before, after, share),
                given=before,
                suggested=after,
                probability=float(sums["probability"][number] / pixels[number]),
                box=box_of(place),
                pixels=int(pixels[number]),
            )
        )
    return numbers.astype(np.uint16), issues


def box_of(place: tuple[slice, ...]) -> Box:
    """A pair of slices as a box."""
    rows, columns = place
    return int(rows.start), int(columns.start), int(rows.stop), int(columns.stop)


def box_around(where: NDArray[np.bool_]) -> Box:
    """The smallest box around the true pixels; nothing gives an empty box."""
    places = ndimage.find_objects(where.astype(np.uint8))
    return box_of(places[0]) if places else (0, 0, 0, 0)


def _kind(before: int, after: int, share: float) -> str:
    if share < WHOLE:
        return "wrong_outline"
    if before == 0:
        return "missing"
    return "superfluous" if after == 0 else "wrong_class"


def _changed_share(areas: Components, changed: NDArray[np.bool_]) -> Map:
    """At each pixel of an area, the share of that area which changed."""
    altered = np.bincount(areas.numbers[changed], minlength=len(areas.sizes))
    share = (altered / np.maximum(areas.sizes, 1)).astype(np.float32)
    share[0] = 0
    return share[areas.numbers]


def _number_regions(areas: NDArray[np.int32], pairs: NDArray[np.int32], *, speck: int) -> tuple[NDArray[np.int32], int]:
    """Region numbers from 1, ordered by pair of labels, and their count; specks of one pair share a number."""
    sizes = np.bincount(areas.ravel())
    pair_of = np.zeros(len(sizes), dtype=np.int64)
    pair_of[areas.ravel()] = pairs.ravel()
    small = (sizes < speck)[1:]
    # Areas of a pair come one by one; its specks fall together behind them.
    key = np.where(small, pair_of[1:] * len(sizes) + len(sizes) - 1, pair_of[1:] * len(sizes) + np.arange(len(small)))
    found, number = np.unique(key, return_inverse=True)
    renumbered = np.concatenate([[0], number + 1]).astype(np.int32)
    return renumbered[areas], len(found)
