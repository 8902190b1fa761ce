"""Pictures of runs as small data that a page can hold by the thousand.

Images shrink to at most 256 pixels and become WebP; label maps become palette PNGs of one to two kilobytes whose
background is transparent, so the browser only has to lay them over the image: no pixel is read back, no canvas.
Equal pictures of several runs are stored once.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from jcas.report.collect import LAYERS, Picture, Run
from jcas.schema import LabelSpace

LONG_SIDE = 256
DIFFERENCES = (
    ("extra", "marked, but not there", (230, 97, 0)),
    ("missed", "there, but not marked", (46, 134, 255)),
    ("other class", "marked as another class", (214, 39, 160)),
)
"""Kinds of disagreement with the reference, in the order of their ids 1, 2, 3; 0 is agreement."""

_UNJUDGED = (128, 128, 128)


@dataclass
class Gallery:
    """Encoded pictures (``blobs``, base64) and the entries that point at them by number."""

    blobs: list[str] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def store(self, encoded: bytes) -> int:
        """Number of an encoded picture, which is kept once."""
        if encoded not in self._numbers:
            self._numbers[encoded] = len(self.blobs)
            self.blobs.append(base64.b64encode(encoded).decode("ascii"))
        return self._numbers[encoded]


def pack_gallery(runs: Sequence[Run]) -> Gallery:
    """Bring the pictures of all runs together by image id, in the order of their first appearance."""
    gallery = Gallery()
    by_id: dict[str, dict[int, Picture]] = {}
    for number, run in enumerate(runs):
        for picture in run.pictures:
            by_id.setdefault(picture.id, {})[number] = picture
    for image_id, pictures in by_id.items():
        first = next(iter(pictures.values()))
        image_file = next((p.files["image"] for p in pictures.values() if "image" in p.files), None)
        size, image = _size_and_image(image_file, first)
        gallery.entries.append(
            {
                "id": image_id,
                "split": first.split,
                "size": size,
                "image": None if image is None else gallery.store(image),
                "runs": [
                    _pack_picture(gallery, pictures[number], run.labels, size) if number in pictures else None
                    for number, run in enumerate(runs)
                ],
            }
        )
    return gallery


def _size_and_image(image_file: Path | None, picture: Picture) -> tuple[tuple[int, int], bytes | None]:
    if image_file is None:
        sizes = [Image.open(picture.files[layer]).size for layer in LAYERS if layer in picture.files]
        return _thumbnail_size(sizes[0] if sizes else (1, 1)), None
    return small_image(image_file)


def small_image(file: Path, *, long_side: int = LONG_SIDE) -> tuple[tuple[int, int], bytes]:
    """Width and height of the small picture, and its WebP bytes."""
    with Image.open(file) as image:
        size = _thumbnail_size(image.size, long_side)
        small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, format="WEBP", quality=78, method=2)
    return size, buffer.getvalue()


def _thumbnail_size(size: tuple[int, int], long_side: int = LONG_SIDE) -> tuple[int, int]:
    shrink = min(1.0, long_side / max(size))
    return max(1, round(size[0] * shrink)), max(1, round(size[1] * shrink))


def _pack_picture(gallery: Gallery, picture: Picture, labels: LabelSpace, size: tuple[int, int]) -> dict[str, Any]:
    packed: dict[str, Any] = {"jac": picture.jac, "givenJac": picture.given_jac}
    maps = {layer: read_labels(picture.files[layer], labels, size) for layer in LAYERS if layer in picture.files}
    for layer, ids in maps.items():
        packed[layer] = gallery.store(label_png(ids, labels))
    reference = maps.get("clean", maps.get("given"))
    if reference is not None and "predicted" in maps:
        colours = ((0, 0, 0), *(colour for _, _, colour in DIFFERENCES), _UNJUDGED)
        difference = _difference(maps["predicted"], reference, ignore=labels.ignore)
        packed["difference"] = gallery.store(palette_png(difference, colours))
    return packed


def read_labels(file: Path, labels: LabelSpace, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Label ids of a file, shrunk without mixing them."""
    image = Image.open(file)
    if image.mode not in ("L", "P", "1", "I", "I;16"):
        raise ValueError(f"{file} is not a label map: its mode is {image.mode}, not grey or palette ids")
    ids = np.asarray(image).astype(np.int64)
    known = (ids >= 0) & (ids < labels.num_classes) | (ids == labels.ignore)
    if not known.all():
        raise ValueError(f"{file} has label {ids[~known][0]}, not one of 0..{labels.num_classes - 1}")
    small = Image.fromarray(ids.astype(np.uint8)).resize(size, Image.Resampling.NEAREST)
    return np.asarray(small)


def label_png(ids: NDArray[np.uint8], labels: LabelSpace) -> bytes:
    """A label map in the colours of its classes; ignored pixels are grey."""
    shown = np.where(ids == labels.ignore, labels.num_classes, ids)
    return palette_png(shown, (*labels.colours, _UNJUDGED))


def _difference(predicted: NDArray[np.uint8], reference: NDArray[np.uint8], *, ignore: int) -> NDArray[np.uint8]:
    """Ids of ``DIFFERENCES``; 4 where nobody judged."""
    result = np.zeros(reference.shape, np.uint8)
    result[(predicted != 0) & (reference == 0)] = 1
    result[(predicted == 0) & (reference != 0)] = 2
    result[(predicted != 0) & (reference != 0) & (predicted != reference)] = 3
    result[reference == ignore] = 4
    return result


def palette_png(ids: NDArray[np.uint8], colours: Sequence[tuple[int, int, int]]) -> bytes:
    """A PNG whose id 0 is transparent; Pillow packs small palettes into 1, 2 or 4 bits per pixel."""
    image = Image.fromarray(ids.astype(np.uint8)).convert("P")
    image.putpalette([value for colour in colours for value in colour])
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", transparency=0)
    return buffer.getvalue()
