"""Noise of the outline: objects drawn too large or too small, with a shaky hand, or with too few clicks.

All three treat one class after the other and draw it over the classes before it, so a later class covers an earlier
one; what no class covers is background.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from skimage import draw, measure
from torch import Tensor

from jcas.noise.base import Mask, Noise, Region, check_share, components


class RegionNoise(Noise):
    """Base of noise that redraws the region of each class, one class after the other."""

    def apply(self, mask: Mask, rng: np.random.Generator, image: Tensor | None) -> Mask:
        """Redraw each class that is present over the ones before it."""
        noisy = np.zeros_like(mask)
        present = [label for label in range(1, self.num_classes) if (mask == label).any()]
        for label, region in zip(present, self.redraw(mask, present, rng), strict=True):
            noisy[region] = label
        return noisy

    @abstractmethod
    def redraw(self, mask: Mask, present: list[int], rng: np.random.Generator) -> list[Region]:
        """The new region of each class that is present."""


@dataclass(frozen=True, kw_only=True)
class DilateErode(RegionNoise):
    """Every class of an image grows, or every class shrinks, until a given share of its area has changed.

    Unit steps (4 neighbours) until changed pixels / class pixels crosses ``ratio``; of the last two steps the one
    nearer to ``ratio`` counts, the smaller on a tie. The image border does not eat into objects that it cuts.
    Li et al., MICCAI 2021 (superpixel-guided learning), make their noise this way.

    Args:
        num_classes: background included.
        ratio: changed pixels relative to the pixels of the class.
        dilate_share: chance that an image is dilated, else it is eroded; 1 always dilates, 0 always erodes.
    """

    ratio: float = 0.5
    dilate_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.ratio < math.inf:
            raise ValueError(f"ratio must be positive, got {self.ratio}")
        check_share("dilate_share", self.dilate_share)

    def redraw(self, mask: Mask, present: list[int], rng: np.random.Generator) -> list[Region]:
        """Dilate all classes or erode all classes."""
        change = dilate_by if rng.random() < self.dilate_share else erode_by
        return [change(mask == label, self.ratio) for label in present]


def dilate_by(region: Region, ratio: float) -> Region:
    """Grow in unit steps by about ``ratio`` times the area."""
    # n unit dilations reach exactly the pixels at city-block distance n, so one distance map holds all steps
    distance = ndimage.distance_transform_cdt(~region, metric="taxicab")
    return region | (distance <= _steps_for(distance[~region], ratio * np.count_nonzero(region)))


def erode_by(region: Region, ratio: float) -> Region:
    """Shrink in unit steps by about ``ratio`` times the area."""
    if region.all():
        return region.copy()  # there is no outline to move
    distance = ndimage.distance_transform_cdt(region, metric="taxicab")
    return region & (distance > _steps_for(distance[region], ratio * np.count_nonzero(region)))


def _steps_for(distances: np.ndarray, target: float) -> int:
    """The number of unit steps whose count of reached pixels is nearest to ``target``, the smaller on a tie."""
    if not distances.size:
        return 0
    reached = np.concatenate([[0], np.bincount(distances)[1:].cumsum()])
    return int(np.abs(reached - target).argmin())


@dataclass(frozen=True, kw_only=True)
class Markov(RegionNoise):
    """The outline walks at random: spatially correlated noise of Yao et al., ICLR 2023.

    In each of ``steps`` steps the region grows (chance ``theta1``) or shrinks: each pixel just outside (just inside)
    the outline flips with chance ``theta2``. Then every pixel flips with chance ``theta3``, and a 5 x 5 Gaussian
    (sigma 2) with threshold 1/2 smooths the result. The paper's settings for 256-pixel lungs: 180 steps, theta1 0.8
    or 0.2, theta2 0.05, theta3 0.2.
    """

    steps: int = 80
    theta1: float = 0.7
    theta2: float = 0.05
    theta3: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 0:
            raise ValueError(f"steps must not be negative, got {self.steps}")
        for name in ("theta1", "theta2", "theta3"):
            check_share(name, getattr(self, name))

    def redraw(self, mask: Mask, present: list[int], rng: np.random.Generator) -> list[Region]:
        """Walk the outline of each class."""
        return [self._walk(mask == label, rng) for label in present]

    def _walk(self, region: Region, rng: np.random.Generator) -> Region:
        region = region.copy()
        for _ in range(self.steps):
            grow = rng.random() < self.theta1
            edge = np.flatnonzero(_touches(region) & ~region if grow else _touches(~region) & region)
            region.flat[edge[rng.random(len(edge)) < self.theta2]] = grow
        if self.theta3:
            region ^= rng.random(region.shape) < self.theta3
        smooth = ndimage.gaussian_filter(region.astype(np.float32), 2.0, radius=2, mode="nearest")
        return smooth > 0.5


def _touches(region: Region) -> Region:
    """Pixels with at least one of their 4 neighbours in the region."""
    touched = np.zeros_like(region)
    touched[1:] |= region[:-1]
    touched[:-1] |= region[1:]
    touched[:, 1:] |= region[:, :-1]
    touched[:, :-1] |= region[:, 1:]
    return touched


@dataclass(frozen=True, kw_only=True)
class Polygon(RegionNoise):
    """Each connected piece becomes a polygon through a few points of its outline, each misplaced a little.

    Cui et al., MICCAI 2023 (MS-TFAL), use 4 to 8 points.

    Args:
        num_classes: background included.
        points: fewest and most corners; their number is drawn per piece.
        jitter: each corner moves by up to this share of the square root of the piece's area, in rows and in columns.
        min_pixels: smaller pieces are kept as they are.
    """

    points: tuple[int, int] = (4, 8)
    jitter: float = 0.1
    min_pixels: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 3 <= self.points[0] <= self.points[1]:
            raise ValueError(f"points must be (fewest, most) with 3 <= fewest <= most, got {self.points}")
        if not 0 <= self.jitter < math.inf:
            raise ValueError(f"jitter must not be negative, got {self.jitter}")
        if self.min_pixels < 1:
            raise ValueError(f"min_pixels must be at least 1, got {self.min_pixels}")

    def redraw(self, mask: Mask, present: list[int], rng: np.random.Generator) -> list[Region]:
        """Redraw each piece of each class."""
        regions = []
        for label in present:
            region = np.zeros(mask.shape, bool)
            for piece in components(mask, label):
                region |= self._polygon(piece, rng) if np.count_nonzero(piece) >= self.min_pixels else piece
            regions.append(region)
        return regions

    def _polygon(self, piece: Region, rng: np.random.Generator) -> Region:
        solid = np.pad(ndimage.binary_fill_holes(piece), 1).astype(np.float32)  # holes would add outlines of their own
        outline = measure.find_contours(solid, 0.5, fully_connected="high")[0] - 1  # undo the padding
        count = int(rng.integers(self.points[0], self.points[1] + 1))
        places = (np.arange(count) + rng.random()) / count * (len(outline) - 1)
        corners = outline[places.astype(int)]
        reach = self.jitter * math.sqrt(np.count_nonzero(piece))
        corners = corners + reach * rng.uniform(-1, 1, corners.shape)
        redrawn = np.zeros(piece.shape, bool)
        redrawn[draw.polygon(corners[:, 0], corners[:, 1], piece.shape)] = True
        return redrawn
