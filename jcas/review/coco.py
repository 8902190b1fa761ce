"""Masks as COCO annotations with uncompressed run lengths.

COCO reads a mask column by column and counts runs of 0 and 1 in turn, beginning with 0 (Lin et al., "Microsoft COCO:
Common Objects in Context", ECCV 2014; format at cocodataset.org).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def run_lengths(mask: NDArray[np.bool_]) -> list[int]:
    """Lengths of the runs of False, True, False, ... down the columns; the first is 0 when the mask begins True.

    >>> run_lengths(np.array([[0, 1], [1, 1]], bool))
    [1, 3]
    >>> run_lengths(np.array([[1, 0], [0, 0]], bool))
    [0, 1, 3]
    """
    flat = np.concatenate([[False], mask.ravel(order="F")])
    starts = np.flatnonzero(flat[1:] != flat[:-1])
    lengths = np.diff(np.concatenate([[0], starts, [mask.size]])).tolist()
    return lengths


def annotate(mask: NDArray[np.uint8], *, image: int, labels: dict[int, str], first: int) -> list[dict[str, Any]]:
    """One annotation for each of ``labels`` that occurs in a mask, numbered from ``first``."""
    found: list[dict[str, Any]] = []
    for label in labels:
        inside = mask == label
        if not inside.any():
            continue
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        top, left = int(rows[0]), int(columns[0])
        found.append(
            {
                "id": first + len(found),
                "image_id": image,
                "category_id": label,
                "segmentation": {"size": list(mask.shape), "counts": run_lengths(inside)},
                "area": int(inside.sum()),
                "bbox": [left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1],
                "iscrowd": 0,
            }
        )
    return found
