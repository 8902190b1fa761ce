"""Outline noise: by how much it changes a region, where, and in which direction."""

import numpy as np
import pytest
from scipy import ndimage

from jcas.noise import DilateErode, Markov, Polygon, rng_for
from jcas.noise.boundary import dilate_by, erode_by


def disc(radius: float = 20, size: int = 80) -> np.ndarray:
    rows, columns = np.indices((size, size)) - (size - 1) / 2
    return np.hypot(rows, columns) <= radius


def iterated(region: np.ndarray, ratio: float, *, grow: bool) -> np.ndarray:
    """The definition, literally: unit steps until the ratio is crossed, then the nearer of the last two."""
    area, previous, current = region.sum(), region, region
    while (previous ^ region).sum() / area < ratio:
        current = ndimage.binary_dilation(previous) if grow else ndimage.binary_erosion(previous, border_value=1)
        if (current ^ region).sum() / area >= ratio or np.array_equal(current, previous):
            break
        previous = current
    missing = [abs((candidate ^ region).sum() / area - ratio) for candidate in (previous, current)]
    return previous if missing[0] <= missing[1] else current


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, 0.7, 1.5])
@pytest.mark.parametrize("grow", [True, False])
def test_dilation_and_erosion_match_iterated_unit_steps(ratio, grow):
    wild = ndimage.gaussian_filter(np.random.default_rng(0).standard_normal((50, 70)), 4) > 0
    for region in (disc(), wild):
        fast = (dilate_by if grow else erode_by)(region, ratio)
        assert np.array_equal(fast, iterated(region, ratio, grow=grow))


@pytest.mark.parametrize("ratio", [0.3, 0.5])
def test_changed_share_is_near_the_ratio(ratio):
    region = disc(25)
    for changed in (dilate_by(region, ratio), erode_by(region, ratio)):
        assert (changed ^ region).sum() / region.sum() == pytest.approx(ratio, abs=0.06)


def test_dilate_share_decides_the_direction():
    mask = disc().astype(np.uint8)
    for share, larger in ((1.0, True), (0.0, False)):
        noisy = DilateErode(num_classes=2, dilate_share=share)(mask, rng_for(0, "a"))
        assert (noisy.sum() > mask.sum()) == larger
    half = DilateErode(num_classes=2)
    grown = [half(mask, rng_for(0, str(i))).sum() > mask.sum() for i in range(60)]
    assert 15 < sum(grown) < 45


def test_border_does_not_erode_a_cut_object():
    mask = np.zeros((40, 40), np.uint8)
    mask[10:30, :20] = 1
    noisy = DilateErode(num_classes=2, dilate_share=0)(mask, rng_for(0, "a"))
    assert noisy[20, 0] == 1 and noisy[20, 19] == 0


@pytest.mark.parametrize(("theta1", "larger"), [(0.9, True), (0.1, False)])
def test_markov_walks_in_the_direction_of_theta1(theta1, larger):
    mask = disc().astype(np.uint8)
    noisy = Markov(num_classes=2, theta1=theta1, theta3=0)(mask, rng_for(0, "a"))
    assert (noisy.sum() > 1.1 * mask.sum()) if larger else (noisy.sum() < 0.9 * mask.sum())


def test_markov_changes_pixels_near_the_outline_only():
    mask = disc(30, 120)
    noise = Markov(num_classes=2, steps=40, theta1=0.5, theta3=0)
    changed = noise(mask.astype(np.uint8), rng_for(0, "a")).astype(bool) ^ mask
    to_outline = np.maximum(ndimage.distance_transform_edt(mask), ndimage.distance_transform_edt(~mask))
    assert changed.any() and to_outline[changed].max() < 8


def test_markov_without_steps_and_flips_only_smooths():
    mask = disc().astype(np.uint8)
    noisy = Markov(num_classes=2, steps=0, theta3=0)(mask, rng_for(0, "a"))
    assert (noisy != mask).mean() < 0.01


def test_markov_unit_step_with_certain_flips_is_one_dilation():
    mask = disc(20, 80)
    noisy = Markov(num_classes=2, steps=6, theta1=1, theta2=1, theta3=0)(mask.astype(np.uint8), rng_for(0, "a"))
    six = ndimage.binary_dilation(mask, iterations=6)
    assert (noisy.astype(bool) ^ six).sum() < 0.01 * six.sum()  # the smoothing rounds the corners


def test_polygon_is_coarse_but_in_place():
    mask = disc(25)
    for i in range(10):
        noisy = Polygon(num_classes=2, jitter=0)(mask.astype(np.uint8), rng_for(0, str(i))).astype(bool)
        # a regular square inside a circle has 2 / pi = 0.64 of its area, an octagon 0.90
        assert 0.55 < noisy.sum() / mask.sum() < 0.95
        assert not (noisy & ~ndimage.binary_dilation(mask)).any()


def test_polygon_with_many_points_and_no_jitter_is_the_region():
    mask = disc(25).astype(np.uint8)
    noisy = Polygon(num_classes=2, points=(150, 150), jitter=0)(mask, rng_for(0, "a"))
    assert (noisy != mask).sum() < 0.05 * mask.sum()


def test_polygon_fills_holes_and_keeps_tiny_pieces():
    ring = disc(25) & ~disc(10)
    ring[2, 2:5] = True
    noisy = Polygon(num_classes=2, points=(30, 30), jitter=0)(ring.astype(np.uint8), rng_for(0, "a"))
    assert noisy[40, 40] == 1
    assert noisy[2, 2:5].all() and noisy[:5].sum() == 3


@pytest.mark.parametrize(
    ("noise", "arguments", "message"),
    [
        (DilateErode, {"ratio": 0}, "ratio .*0"),
        (DilateErode, {"dilate_share": 1.5}, "dilate_share .*1.5"),
        (Markov, {"steps": -1}, "steps .*-1"),
        (Markov, {"theta2": 1.1}, "theta2 .*1.1"),
        (Markov, {"theta3": float("nan")}, "theta3 .*nan"),
        (Polygon, {"points": (2, 5)}, r"points .*\(2, 5\)"),
        (Polygon, {"points": (6, 5)}, r"points .*\(6, 5\)"),
        (Polygon, {"jitter": -0.1}, "jitter .*-0.1"),
    ],
)
def test_bad_parameters_are_named(noise, arguments, message):
    with pytest.raises(ValueError, match=message):
        noise(num_classes=2, **arguments)
