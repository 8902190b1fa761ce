"""EndoVis 2018 and 2017 in the layouts of their challenges, with the instrument-part labels of the paper.

Classes: background 0, shaft 1, wrist 2, clasper 3. Frames are resized to 256 x 320 (image bicubic with antialiasing,
labels nearest), as the paper does. Both sets come as videos, so a video is a group and splits hold whole videos.

EndoVis 2018 (Allan et al., "2018 Robotic Scene Segmentation Challenge", arXiv 2001.11190)::

    labels.json                        [{"name": "instrument-shaft", "color": [0, 255, 0], "classid": 1}, ...]
    seq_1/left_frames/frame000.png     149 frames; 15 sequences, seq_8 does not exist
    seq_1/labels/frame000.png          colour-coded scene

EndoVis 2017 (Allan et al., "2017 Robotic Instrument Segmentation Challenge", arXiv 1902.06426)::

    instrument_dataset_1/left_frames/frame000.png            225 frames; 8 sequences with labels
    instrument_dataset_1/ground_truth/<instrument>/frame000.png    10 shaft, 20 wrist, 30 clasper

The sequences may lie one folder deeper, as in the release archives. An optional ``dataset.yaml`` beside them chooses
another split or size, for every command alike (see `Description`)::

    validation_sequences: [4, 11]      # EndoVis 2018; none by default, as published
    test_sequences: [2, 5, 9, 15]      # the default there
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor

from jcas.data import files
from jcas.data.dataset import Dataset, Reader, Record
from jcas.data.resize import resize_image, resize_labels
from jcas.schema import IGNORE, LabelSpace

SIZE = (256, 320)
LABELS = LabelSpace(names=("background", "shaft", "wrist", "clasper"))
TEST_SEQUENCES_18 = (2, 5, 9, 15)
"""Split of ISINet (Gonzalez et al., MICCAI 2020): 596 test and 1639 training frames."""

_SEQUENCE_18 = re.compile(r"seq_(\d+)")
_SEQUENCE_17 = re.compile(r"instrument_dataset_(\d+)")
_PARTS_18 = {"instrument-shaft": 1, "instrument-wrist": 2, "instrument-clasper": 3}
_PARTS_17 = {0: 0, 10: 1, 20: 2, 30: 3, 40: 0}  # 40: ultrasound probe, no part of a robotic instrument
_FRAME_17 = (1080, 1920)
_CAMERA_17 = (slice(28, 28 + 1024), slice(320, 320 + 1280))  # the camera image inside the black border
_MOST_UNKNOWN = 0.01  # share of pixels with a meaningless value that still counts as a slip of the pen

Colour = tuple[int, int, int]


class Description(BaseModel):
    """The keys of ``dataset.yaml`` beside EndoVis sequences; all are optional, an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    validation_sequences: tuple[int, ...] = ()  # training sequences to hold out as `val`
    test_sequences: tuple[int, ...] | None = None  # None: ISINet's in EndoVis 2018, none in EndoVis 2017
    size: tuple[PositiveInt, PositiveInt] | None = SIZE  # rows and columns; null keeps the frames' own


def read_endovis18(
    path: Path | str,
    *,
    validation_sequences: Collection[int] = (),
    test_sequences: Collection[int] = TEST_SEQUENCES_18,
    size: tuple[int, int] | None = SIZE,
) -> Dataset:
    """Read EndoVis 2018; the published split has no validation part, so ``val`` is empty unless asked for.

    Args:
        path: folder of ``seq_*`` (or of the release folders that hold them) with ``labels.json``.
        validation_sequences: training sequences to hold out as ``val``.
        test_sequences: the split of ISINet by default.
        size: rows and columns of every sample; None keeps 1024 x 1280.
    """
    root = Path(path)
    sequences = _find_sequences(root, _SEQUENCE_18, "labels")
    colours = _read_colours(root)
    records = []
    for number, folder in sequences.items():
        frames, labels = (files.list_images(folder / name) for name in ("left_frames", "labels"))
        for name, frame in frames.items():
            if name not in labels:
                raise ValueError(f"{frame}: no label of this name in {folder.name}/labels/")
            records.append(_record(f"seq_{number:02d}", name, frame, labels[name]))
    return _dataset(
        "EndoVis18", root, records, sequences, validation_sequences, test_sequences, EndoVis18Reader(colours, size)
    )


def read_endovis17(
    path: Path | str,
    *,
    validation_sequences: Collection[int] = (),
    test_sequences: Collection[int] = (),
    size: tuple[int, int] | None = SIZE,
) -> Dataset:
    """Read EndoVis 2017; by default all labelled sequences train (the paper's source domain).

    Sequences without ``ground_truth/`` (the challenge's test archives) are left out. The parts of all instruments are
    merged into one mask; ``Other_labels`` (probes, no robotic instrument) is background. Frames of 1080 x 1920 are
    cropped to the camera's 1024 x 1280 first.
    """
    root = Path(path)
    sequences = _find_sequences(root, _SEQUENCE_17, "ground_truth")
    records = []
    for number, folder in sequences.items():
        truth = folder / "ground_truth"
        for name, frame in files.list_images(folder / "left_frames").items():
            records.append(_record(f"instrument_dataset_{number:02d}", name, frame, truth))
    return _dataset("EndoVis17", root, records, sequences, validation_sequences, test_sequences, EndoVis17Reader(size))


@dataclass(frozen=True)
class EndoVis18Reader:
    """Frames and colour-coded scenes; every scene class that is no instrument part is background."""

    colours: Mapping[Colour, int] = field(hash=False)
    target: tuple[int, int] | None = SIZE

    def size(self, record: Record) -> tuple[int, int]:
        """Rows and columns of the loaded image, without decoding it."""
        return self.target or files.image_size(record.image)

    def image(self, record: Record, *, intensity: tuple[float, float] | None) -> Tensor:
        """The frame, (3, H, W) float32 in 0..1."""
        image = files.read_image(record.image, intensity=intensity)
        return resize_image(image, self.target, mode="bicubic") if self.target else image

    def mask(self, path: Path, record: Record, *, labels: LabelSpace) -> Tensor:
        """The instrument parts of the scene at ``path``."""
        scene = files.read_colours(path).astype(np.int64)
        code = scene @ np.array([65536, 256, 1])
        meaning = {(r << 16) + (g << 8) + b: part for (r, g, b), part in self.colours.items()}
        mask = _translated(code, meaning, path)
        return resize_labels(mask, self.target) if self.target else mask


@dataclass(frozen=True)
class EndoVis17Reader:
    """Frames and one grey mask per instrument; ``Record.noisy`` is the folder of these masks."""

    target: tuple[int, int] | None = SIZE

    def size(self, record: Record) -> tuple[int, int]:
        """Rows and columns of the loaded image, without decoding it."""
        native = files.image_size(record.image)
        return self.target or ((1024, 1280) if native == _FRAME_17 else native)

    def image(self, record: Record, *, intensity: tuple[float, float] | None) -> Tensor:
        """The frame, (3, H, W) float32 in 0..1."""
        image = _camera(files.read_image(record.image, intensity=intensity))
        return resize_image(image, self.target, mode="bicubic") if self.target else image

    def mask(self, path: Path, record: Record, *, labels: LabelSpace) -> Tensor:
        """The parts of all instruments of a frame; where two overlap, the part nearer to the tip wins."""
        frame = files.stem(record.image) + ".png"
        instruments = [p for p in sorted(path.iterdir()) if p.is_dir() and not p.name.startswith(("Other", "."))]
        if not instruments:
            raise ValueError(f"{path}: no instrument folders")
        merged = torch.zeros(files.image_size(record.image), dtype=torch.int64)
        for folder in instruments:
            values = files.read_colours(folder / frame).astype(np.int64)
            # Some sequences store grey as RGB; a pixel whose channels differ means nothing.
            grey = np.where((values == values[:, :, :1]).all(axis=2), values[:, :, 0], -1)
            part = _translated(grey, _PARTS_17, folder / frame)
            if part.shape != merged.shape:
                raise ValueError(f"{folder / frame}: size {tuple(part.shape)}, but its image has {tuple(merged.shape)}")
            # 255 is the largest number: what is meaningless in one mask stays ignored in the union.
            merged = torch.maximum(merged, part)
        merged = _camera(merged)
        return resize_labels(merged, self.target) if self.target else merged


def _find_sequences(root: Path, pattern: re.Pattern[str], label_folder: str) -> dict[int, Path]:
    """Labelled sequence folders by number, at ``root`` or one folder deeper."""
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    found: dict[int, Path] = {}
    for folder in sorted([*root.glob("*/"), *root.glob("*/*/")]):
        match = pattern.fullmatch(folder.name)
        if not match or not (folder / "left_frames").is_dir() or not (folder / label_folder).is_dir():
            continue
        number = int(match[1])
        if number in found:
            raise ValueError(f"{folder}: sequence {number} is also at {found[number]}")
        found[number] = folder
    if not found:
        wanted = pattern.pattern.replace(r"(\d+)", "*")
        raise FileNotFoundError(f"{root}: no folder {wanted} with left_frames/ and {label_folder}/")
    return dict(sorted(found.items()))


def _read_colours(root: Path) -> dict[Colour, int]:
    found = sorted([*root.glob("labels.json"), *root.glob("*/labels.json")])
    if not found:
        raise FileNotFoundError(f"{root}: no labels.json (the colours of the scene classes)")
    path = found[0]
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        colours = {tuple(map(int, e["color"])): _PARTS_18.get(e["name"], 0) for e in entries}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected a list of name, color and classid ({error!r})") from error
    missing = sorted(_PARTS_18.keys() - {e["name"] for e in entries})
    if missing or any(len(colour) != 3 for colour in colours):
        raise ValueError(f"{path}: needs a colour of three numbers for each part, {missing or 'one'} is missing")
    return {(r, g, b): part for (r, g, b), part in colours.items()}


def _record(group: str, name: str, frame: Path, labels: Path) -> Record:
    # The published labels are the truth; noise is laid over a copy of the dataset, never over this one.
    return Record(
        id=f"{group}_{name}", image=frame, noisy=labels, clean=labels, weight=None, split="train", group=group
    )


def _dataset(
    name: str,
    root: Path,
    records: list[Record],
    sequences: Collection[int],
    validation: Collection[int],
    test: Collection[int],
    reader: Reader,
) -> Dataset:
    for number in test:
        # The published split names sequences that a part of the archives does not hold; a choice of one's own must fit.
        if number not in sequences and tuple(test) != TEST_SEQUENCES_18:
            raise ValueError(f"{root}: no test sequence {number} (there are: {', '.join(map(str, sequences))})")
    for number in validation:
        if number not in sequences or number in test:
            free = ", ".join(str(n) for n in sequences if n not in test)
            raise ValueError(f"{root}: validation sequence {number} is not a training sequence (these are: {free})")
    part = {number: "val" if number in validation else "test" if number in test else "train" for number in sequences}
    placed = [replace(record, split=part[int(record.group.rpartition("_")[2])]) for record in records]
    return Dataset(name=name, root=root, labels=LABELS, channels=3, records=tuple(placed), reader=reader)


def _translated(values: np.ndarray, meaning: Mapping[int, int], path: Path) -> Tensor:
    """Stored values to class ids; rare unknown values (stray pixels) are ignored, many are an error."""
    present, inverse = np.unique(values, return_inverse=True)
    ids = np.array([meaning.get(int(value), IGNORE) for value in present])[inverse.reshape(values.shape)]
    unknown = float((ids == IGNORE).mean())
    if unknown > _MOST_UNKNOWN:
        raise ValueError(f"{path}: {unknown:.0%} of the pixels have a value that is not in the list of labels")
    return torch.from_numpy(ids)


def _camera(tensor: Tensor) -> Tensor:
    return tensor[..., _CAMERA_17[0], _CAMERA_17[1]] if tuple(tensor.shape[-2:]) == _FRAME_17 else tensor
