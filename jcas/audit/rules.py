"""Plain checks that need no probability: in one mask, and between the masks of a dataset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from jcas.audit.posterior import Labels, Map, Probabilities
from jcas.audit.regions import Box, Issue, box_around, components
from jcas.schema import IGNORE

STRAY = 0.05
"""A part smaller than this share of its class's largest part is stray."""

GRID = 16
"""Side of the thumbnails that images and masks are compared by."""

SAME_IMAGE = 2
"""Largest difference of grey level (of 255) between the thumbnails of two copies of an image."""

OWN_MATCH, OTHER_MATCH = 0.4, 0.8
"""A mask is another image's if it overlaps its own prediction less, and that image's prediction more, than this."""

_LEAST_CONTRAST = 4  # grey levels; flat images all look alike
_BLOCK = 256  # images compared at a time


@dataclass(frozen=True)
class Place:
    """Where an image stands among the others."""

    id: str
    group: str
    slice_index: int | None
    size: tuple[int, int]
    pixels: tuple[int, ...]  # of each class in the given mask
    expected: tuple[float, ...]  # of each class, as the model expects
    given_hash: str


def check_mask(given: Labels, probs: Probabilities, wrongness: Map) -> list[Issue]:
    """Empty mask, stray parts, holes; probabilities are the model's."""
    whole: Box = (0, 0, *given.shape)
    foreground = (given > 0) & (given != IGNORE)
    if not foreground.any():
        sure = float(probs[1:].sum(0).max())
        return [Issue(0, "empty_mask", 0, int(probs[1:].sum((1, 2)).argmax()) + 1, sure, whole, 0)]
    found = []
    parts = components(given)
    largest = np.zeros(IGNORE + 1, dtype=np.int64)
    np.maximum.at(largest, parts.classes, parts.sizes)
    stray = (parts.sizes > 0) & (parts.sizes < STRAY * largest[parts.classes])
    for label in np.unique(parts.classes[stray]):
        where = (stray & (parts.classes == label))[parts.numbers]
        found.append(_rule("stray_component", int(label), 0, where, wrongness))
    holes = ndimage.binary_fill_holes(foreground) & (given == 0)
    if holes.any():
        around = given[ndimage.binary_dilation(holes) & foreground]
        found.append(_rule("hole", 0, int(np.bincount(around).argmax()), holes, wrongness))
    return found


def _rule(kind: str, given: int, suggested: int, where: NDArray[np.bool_], wrongness: Map) -> Issue:
    return Issue(0, kind, given, suggested, float(wrongness[where].mean()), box_around(where), int(where.sum()))


# --- between images --------------------------------------------------------------------------------------------------


def fingerprint(image: NDArray[np.float32], given: Labels, probs: Probabilities) -> NDArray[np.uint8]:
    """Thumbnails of the image, of the given and of the predicted foreground classes, as one row of bytes."""
    classes = len(probs)
    maps = [image.mean(0), *((given == c).astype(np.float32) for c in range(1, classes)), *probs[1:]]
    return np.stack([(_thumbnail(each) * 255).round().clip(0, 255) for each in maps]).astype(np.uint8).ravel()


def fingerprint_size(classes: int) -> int:
    """Bytes of a fingerprint."""
    return GRID * GRID * (2 * classes - 1)


def _thumbnail(values: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = (np.linspace(0, side, GRID + 1).astype(int) for side in values.shape)
    # Images smaller than the grid repeat pixels.
    top, left = np.minimum(rows[:-1], values.shape[0] - 1), np.minimum(columns[:-1], values.shape[1] - 1)
    height, width = np.maximum(np.diff(rows), 1), np.maximum(np.diff(columns), 1)
    sums = np.add.reduceat(np.add.reduceat(values, top, axis=0), left, axis=1)
    return sums / (height[:, None] * width[None])


def absent_classes(places: Sequence[Place]) -> Iterator[tuple[str, Issue]]:
    """Classes that both neighbours (slices of a volume, frames of a video) have and the image between them has not."""
    for before, here, after in _triples(places):
        for label in range(1, len(here.pixels)):
            around = min(before.pixels[label], after.pixels[label])
            if here.pixels[label] == 0 and around > 0:
                sure = min(1.0, 2 * here.expected[label] / (before.pixels[label] + after.pixels[label]))
                yield here.id, Issue(0, "class_absent", 0, label, sure, (0, 0, *here.size), around)


def _triples(places: Sequence[Place]) -> Iterator[tuple[Place, Place, Place]]:
    """Images with both neighbours: same group, names alike but for the last number, and that one step away.

    A step is the commonest gap of the series: 10 if a video gave every tenth frame. Gaps that are all different make
    no neighbours.
    """
    series: dict[tuple[str, str], dict[int, Place]] = {}
    for place in places:
        name, number = _numbered(place)
        if number is not None:
            series.setdefault((place.group, name), {})[number] = place
    for members in series.values():
        gaps = Counter(after - before for before, after in pairwise(sorted(members)))
        step = max(gaps, key=lambda gap: (gaps[gap], -gap), default=1)
        for number, place in sorted(members.items()):
            if number - step in members and number + step in members:
                yield members[number - step], place, members[number + step]


def _numbered(place: Place) -> tuple[str, int | None]:
    if place.slice_index is not None:
        return place.id.rpartition("#")[0], place.slice_index
    last = re.search(r"(\d+)(\D*)$", place.id)
    return (place.id[: last.start()] + "#" + last[2], int(last[1])) if last else (place.id, None)


def mismatched_pairs(
    places: Sequence[Place], prints: NDArray[np.uint8], *, classes: int
) -> Iterator[tuple[str, Issue]]:
    """Masks that fit the prediction of another image and not that of their own."""
    cells = GRID * GRID * (classes - 1)
    given, predicted = prints[:, GRID * GRID : -cells], prints[:, -cells:]
    own = np.array([_overlap(given[i : i + 1], predicted[i : i + 1])[0, 0] for i in range(len(places))])
    areas = np.array([sum(place.pixels[1:]) for place in places])
    odd = np.flatnonzero((own < OWN_MATCH) & (areas > 0))
    for start in range(0, len(odd), _BLOCK):
        block = odd[start : start + _BLOCK]
        best = np.zeros(len(block))
        for other in range(0, len(places), _BLOCK):
            best = np.maximum(best, _overlap(given[block], predicted[other : other + _BLOCK]).max(1))
        for index, match in zip(block, best, strict=True):
            if match >= OTHER_MATCH:
                place = places[index]
                whole = (0, 0, *place.size)
                yield place.id, Issue(0, "mismatched_pair", -1, -1, float(match - own[index]), whole, int(areas[index]))


def duplicate_conflicts(places: Sequence[Place], prints: NDArray[np.uint8]) -> Iterator[tuple[str, Issue]]:
    """Copies of one image (also re-compressed ones) whose masks differ."""
    images = prints[:, : GRID * GRID].astype(np.int16)
    brightness = images.mean(1) if len(images) else np.zeros(0)
    order = np.argsort(brightness, kind="stable")
    masks = prints[:, GRID * GRID :][:, : (prints.shape[1] - GRID * GRID) // 2]
    worst: dict[int, float] = {}
    for position, first in enumerate(order):
        if np.ptp(images[first]) < _LEAST_CONTRAST:
            continue
        for second in order[position + 1 :]:
            if brightness[second] - brightness[first] > SAME_IMAGE:
                break
            if places[first].size != places[second].size or places[first].given_hash == places[second].given_hash:
                continue
            if np.abs(images[first] - images[second]).max() <= SAME_IMAGE:
                differ = 1 - float(_overlap(masks[first : first + 1], masks[second : second + 1])[0, 0])
                for index in (int(first), int(second)):
                    worst[index] = max(worst.get(index, 0.0), differ)
    for index in sorted(worst):
        place = places[index]
        area = sum(place.pixels[1:])
        yield place.id, Issue(0, "duplicate_conflict", -1, -1, worst[index], (0, 0, *place.size), area)


def _overlap(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.float64]:  # (n, d), (m, d) -> (n, m)
    """Soft Dice of every pair of rows; two empty rows agree."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    squares = np.square(a).sum(1)[:, None] + np.square(b).sum(1)[None]
    return np.where(squares > 0, 2 * (a @ b.T) / np.maximum(squares, 1), 1.0)
