import numpy as np
import pytest

from jcas.audit.regions import components, find_regions


def area(rows: slice, columns: slice, label: int = 1, size: tuple[int, int] = (20, 20)) -> np.ndarray:
    mask = np.zeros(size, np.uint8)
    mask[rows, columns] = label
    return mask


SURE = np.full((20, 20), 0.95, np.float32)
OBJECT = area(slice(4, 12), slice(4, 12))


@pytest.mark.parametrize(
    ("given", "repaired", "kind", "pixels"),
    [
        (OBJECT, np.zeros_like(OBJECT), "superfluous", 64),
        (np.zeros_like(OBJECT), OBJECT, "missing", 64),
        (OBJECT, OBJECT * 2, "wrong_class", 64),
        (OBJECT, area(slice(4, 12), slice(4, 11)), "wrong_outline", 8),
        (area(slice(4, 12), slice(4, 11)), OBJECT, "wrong_outline", 8),
        (OBJECT, OBJECT + area(slice(4, 6), slice(4, 12)), "wrong_outline", 16),
    ],
)
def test_region_has_the_kind_of_its_change(given, repaired, kind, pixels):
    regions, issues = find_regions(given, repaired, SURE)
    assert [(issue.kind, issue.pixels) for issue in issues] == [(kind, pixels)]
    assert issues[0].probability == pytest.approx(0.95)
    rows, columns = np.nonzero(given != repaired)
    assert issues[0].box == (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
    assert (regions > 0).sum() == pixels


def test_regions_cover_exactly_the_changed_pixels_and_part_by_change():
    rng = np.random.default_rng(1)
    given, repaired = (rng.integers(4, size=(40, 40)).astype(np.uint8) for _ in range(2))
    regions, issues = find_regions(given, repaired, np.ones((40, 40), np.float32))
    assert ((regions > 0) == (given != repaired)).all()
    assert sorted(np.unique(regions[regions > 0])) == [issue.region for issue in issues]
    for issue in issues:
        where = regions == issue.region
        assert set(given[where]) == {issue.given} and set(repaired[where]) == {issue.suggested}
        assert where.sum() == issue.pixels


def test_single_pixels_are_pooled_into_one_region():
    given = np.zeros((64, 64), np.uint8)
    given[::4, ::4] = 1
    _, issues = find_regions(given, np.zeros_like(given), np.ones((64, 64), np.float32))
    assert [(issue.kind, issue.pixels) for issue in issues] == [("superfluous", 256)]


def test_unchanged_mask_has_no_regions():
    regions, issues = find_regions(OBJECT, OBJECT.copy(), SURE)
    assert not regions.any() and not issues


def test_components_part_touching_classes_and_skip_ignored_pixels():
    mask = OBJECT + area(slice(12, 14), slice(4, 12), 2)
    mask[0] = 255
    parts = components(mask)
    assert parts.sizes.tolist() == [0, 64, 16] and parts.classes.tolist() == [0, 1, 2]
    assert (parts.numbers[0] == 0).all()
