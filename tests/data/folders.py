"""Small dataset folders for the tests of this directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def blocks(rows: int, columns: int, *, classes: int = 3, turn: int = 0) -> np.ndarray:
    """A lopsided mask: no flip, transposition or shift of it is itself."""
    mask = np.zeros((rows, columns), dtype=np.uint8)
    mask[1 : rows // 2, 1 : columns // 3] = 1
    mask[rows // 2 :, columns // 2 :] = classes - 1
    mask[0, -1] = 1
    return np.roll(mask, turn, axis=1)


def write_folder(
    root: Path,
    sizes: Mapping[str, tuple[int, int]],
    *,
    clean: Sequence[str] = (),
    weights: Sequence[str] = (),
    channels: int = 1,
) -> Path:
    """Images whose grey value is 60 times the label, so that masks can be told from images."""
    for turn, (name, (rows, columns)) in enumerate(sizes.items()):
        mask = blocks(rows, columns, turn=turn)
        image = mask * 60
        save(root / "images" / f"{name}.png", image if channels == 1 else np.dstack([image] * 3))
        save(root / "masks" / f"{name}.png", mask)
        if name in clean:
            save(root / "clean" / f"{name}.png", 2 - mask)
        if name in weights:
            save(root / "weights" / f"{name}.png", 255 - mask * 100)
    return root


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def numbered(count: int, size: tuple[int, int] = (12, 16)) -> dict[str, tuple[int, int]]:
    """Names ``i00, i01, ...``, all of one size."""
    return {f"i{index:02d}": size for index in range(count)}
