"""From changed pixels to regions that a person can judge: what should go, what is missing, what has moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

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
_DIAGONALS_TOUCH = np.ones((3, 3), dtype=bool)


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
    numbers = np.zeros(mask.shape, dtype=np.int32)
    classes = [0]
    for label in np.flatnonzero(np.bincount(mask.ravel(), minlength=IGNORE)[:IGNORE])[:]:
        if label == 0:
            continue
        found, count = ndimage.label(mask == label, structure=_DIAGONALS_TOUCH)
        numbers[found > 0] = found[found > 0] + len(classes) - 1
        classes += [int(label)] * count
    sizes = np.bincount(numbers.ravel(), minlength=len(classes))
    sizes[0] = 0
    return Components(numbers, sizes, np.array(classes))


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
    numbers = np.zeros(given.shape, dtype=np.int32)
    if not changed.any():
        return numbers.astype(np.uint16), []
    taken = _changed_share(components(given), changed)
    made = _changed_share(components(repaired), changed)
    pairs = np.where(changed, given.astype(np.int64) * 256 + repaired, -1)
    speck, count = SPECK, _MOST_REGIONS + 1
    while count > _MOST_REGIONS:
        count = _number_regions(numbers, pairs, speck=speck)
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


def _number_regions(numbers: NDArray[np.int32], pairs: NDArray[np.int64], *, speck: int) -> int:
    """Fill in region numbers from 1 and return their count; specks of one pair of labels share a number."""
    numbers[...] = 0
    count = 0
    for pair in np.unique(pairs[pairs >= 0]):
        found, _ = ndimage.label(pairs == pair, structure=_DIAGONALS_TOUCH)
        sizes = np.bincount(found.ravel())
        large = sizes >= speck
        large[0] = False
        renumbered = np.zeros(len(sizes), dtype=np.int32)
        renumbered[large] = count + 1 + np.arange(large.sum())
        count += int(large.sum())
        if not large[1:].all():
            count += 1
            renumbered[1:][~large[1:]] = count
        numbers += renumbered[found]
    return count
