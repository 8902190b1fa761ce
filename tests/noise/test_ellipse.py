"""Ellipses have the moments, the area or the enclosing property that their fit promises."""

import math

import numpy as np
import pytest

from jcas.data.synthetic import synthesise
from jcas.noise import Ellipse, rng_for
from jcas.noise.ellipse import (
    EllipseShape,
    area_ellipse,
    enclosing_ellipse,
    minimum_volume_ellipse,
    moment_ellipse,
)


def rotated(semi_axes: tuple[float, float], angle: float) -> np.ndarray:
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return turn @ np.diag(np.square(semi_axes)) @ turn.T


def rectangle(height: int, width: int) -> np.ndarray:
    region = np.zeros((height + 60, width + 60), bool)
    region[30 : 30 + height, 30 : 30 + width] = True
    return region


@pytest.mark.parametrize("fit", [moment_ellipse, area_ellipse])
def test_fit_of_a_filled_ellipse_gives_it_back(fit):
    truth = EllipseShape(np.array([61.3, 74.8]), rotated((40.0, 17.0), 0.6))
    found = fit(truth.region((128, 160)))
    assert np.allclose(found.centre, truth.centre, atol=0.1)
    assert np.allclose(found.matrix, truth.matrix, rtol=0.02, atol=5)
    assert found.area == pytest.approx(math.pi * 40 * 17, rel=0.01)


def test_moment_ellipse_has_the_covariance_of_any_region():
    region = synthesise(1, size=(128, 160))[1] == 3
    drawn = moment_ellipse(region).region((128, 160))
    wanted, got = (np.argwhere(r).astype(float) for r in (region, drawn))
    assert np.allclose(got.mean(0), wanted.mean(0), atol=0.3)
    assert np.allclose(np.cov(got.T), np.cov(wanted.T), rtol=0.03, atol=1.5)


def test_moment_ellipse_of_a_rectangle_is_a_twentieth_larger():
    # area pi * 4 * sqrt(h^2 / 12 * w^2 / 12) = pi / 3 * h * w
    assert moment_ellipse(rectangle(20, 50)).area == pytest.approx(math.pi / 3 * 20 * 50, rel=1e-9)


def test_area_ellipse_keeps_area_centre_and_orientation():
    region = synthesise(1, size=(128, 160))[1] == 3
    moments, area = moment_ellipse(region), area_ellipse(region)
    assert area.region(region.shape).sum() == pytest.approx(region.sum(), rel=0.03)
    assert np.array_equal(area.centre, moments.centre)
    assert np.allclose(area.matrix / area.matrix[0, 0], moments.matrix / moments.matrix[0, 0])


def test_minimum_volume_ellipse_of_points_on_an_ellipse_is_that_ellipse():
    matrix, centre = rotated((9.0, 4.0), 1.1), np.array([3.0, -2.0])
    angles = np.linspace(0, 2 * math.pi, 40, endpoint=False)
    points = centre + np.column_stack([np.cos(angles), np.sin(angles)]) @ np.linalg.cholesky(matrix).T
    found = minimum_volume_ellipse(points)
    assert np.allclose(found.centre, centre, atol=0.01)
    assert np.allclose(found.matrix, matrix, rtol=0.002, atol=0.01)


@pytest.mark.parametrize(("height", "width"), [(10, 10), (7, 40), (1, 30)])
def test_enclosing_ellipse_of_a_rectangle_has_the_known_area(height, width):
    assert enclosing_ellipse(rectangle(height, width)).area == pytest.approx(math.pi / 2 * height * width, rel=1e-3)


def test_minimum_volume_ellipse_of_a_triangle_has_the_known_area():
    # Steiner's circumellipse: 4 pi / (3 sqrt 3) times the area of the triangle
    found = minimum_volume_ellipse(np.array([[0.0, 0.0], [6.0, 1.0], [2.0, 5.0]]))
    assert found.area == pytest.approx(4 * math.pi / (3 * math.sqrt(3)) * 14.0, rel=1e-3)


@pytest.mark.parametrize("index", range(4))
def test_enclosing_ellipse_holds_every_pixel_and_touches(index):
    region = synthesise(index, size=(128, 160))[1] == 3
    ellipse = enclosing_ellipse(region)
    distance = ellipse.distance(np.argwhere(region))
    assert distance.max() <= 1 and distance.max() > 0.9
    assert ellipse.region(region.shape)[region].all()


def test_growing_changes_both_semi_axes():
    ellipse = EllipseShape(np.zeros(2), rotated((10.0, 4.0), 0.3))
    for radius, semi_axes in ((2.0, (12.0, 6.0)), (-3.0, (7.0, 1.0)), (-30.0, (0.5, 0.5))):
        assert np.allclose(ellipse.grown(radius).matrix, rotated(semi_axes, 0.3))


def test_later_class_covers_earlier_one():
    mask = np.zeros((60, 60), np.uint8)
    mask[20:40, 10:30] = 2
    mask[20:40, 30:50] = 1
    noisy = Ellipse(num_classes=3, jitter=0, fit="enclosing")(mask, rng_for(0, "a"))
    alone = Ellipse(num_classes=3, jitter=0, fit="enclosing")(
        np.where(mask == 2, mask, 0).astype(np.uint8), rng_for(0, "a")
    )
    assert np.array_equal(noisy == 2, alone == 2)
    assert (noisy[mask == 1] == 2).any()


def test_each_component_gets_its_own_ellipse_and_tiny_ones_stay():
    mask = np.zeros((60, 90), np.uint8)
    mask[10:30, 10:30] = mask[10:30, 60:80] = 1
    mask[50, 40:45] = 1
    noisy = Ellipse(num_classes=2, jitter=0)(mask, rng_for(0, "a"))
    assert (noisy[:, 35:55][:45] == 0).all()
    assert np.array_equal(noisy[45:], mask[45:])


def test_jitter_both_grows_and_shrinks():
    mask = np.zeros((60, 60), np.uint8)
    mask[20:40, 15:45] = 1
    noise = Ellipse(num_classes=2, jitter=0.3, fit="area")
    ratios = [(noise(mask, rng_for(0, str(i))) == 1).sum() / (mask == 1).sum() for i in range(30)]
    assert min(ratios) < 0.8 and max(ratios) > 1.25 and abs(np.mean(ratios) - 1) < 0.15


def test_area_ratios_on_instruments_resemble_the_published_ones():
    """Published class frequencies give shaft 0.94, wrist 0.93, clasper 1.46; an enclosing fit would be far above."""
    masks = [synthesise(i, size=(96, 120))[1] for i in range(40)]
    noise = Ellipse(num_classes=4)
    noisy = [noise(mask, rng_for(0, str(i))) for i, mask in enumerate(masks)]
    before, after = (sum(np.bincount(m.ravel(), minlength=4) for m in group) for group in (masks, noisy))
    shaft, wrist, clasper = (after / before)[1:]
    assert 0.85 < shaft < 1.1 and 0.8 < wrist < 1.1 and 1.2 < clasper < 2.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"fit": "box"}, "'box'"), ({"jitter": 1.0}, "jitter .*1.0"), ({"min_pixels": 0}, "min_pixels .*0")],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Ellipse(num_classes=2, **arguments)
