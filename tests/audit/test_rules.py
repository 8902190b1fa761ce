import numpy as np
import pytest

from jcas.audit.rules import (
    Place,
    absent_classes,
    check_mask,
    duplicate_conflicts,
    fingerprint,
    fingerprint_size,
    mismatched_pairs,
)


def disc(row: int, column: int, radius: int = 8, size: int = 64) -> np.ndarray:
    rows, columns = np.ogrid[:size, :size]
    return ((rows - row) ** 2 + (columns - column) ** 2 <= radius**2).astype(np.uint8)


def predicted(mask: np.ndarray) -> np.ndarray:
    return np.stack([1.0 - mask, mask]).astype(np.float32)


def place(name: str, mask: np.ndarray, **changes) -> Place:
    areas = (int((mask == 0).sum()), int((mask == 1).sum()))
    values = {
        "group": "g",
        "slice_index": None,
        "size": mask.shape,
        "pixels": areas,
        "expected": tuple(map(float, areas)),
        "given_hash": mask.tobytes().hex(),
    }
    return Place(id=name, **{**values, **changes})


def kinds(mask: np.ndarray, wrong: float = 0.5) -> list[str]:
    wrongness = np.full(mask.shape, wrong, np.float32)
    return [issue.kind for issue in check_mask(mask, predicted(np.zeros_like(mask)), wrongness)]


def test_whole_mask_breaks_no_rule():
    assert kinds(disc(30, 30)) == []


def test_empty_mask_is_found_and_its_probability_is_the_models():
    found = check_mask(np.zeros((64, 64), np.uint8), predicted(disc(30, 30) * 0.7), np.zeros((64, 64), np.float32))
    assert [issue.kind for issue in found] == ["empty_mask"]
    assert found[0].probability == pytest.approx(0.7) and found[0].suggested == 1


def test_stray_part_is_found_with_its_box():
    mask = disc(30, 30)
    mask[2:4, 50:53] = 1
    found = check_mask(mask, predicted(mask), np.full(mask.shape, 0.25, np.float32))
    assert [(i.kind, i.given, i.suggested, i.pixels, i.box) for i in found] == [
        ("stray_component", 1, 0, 6, (2, 50, 4, 53))
    ]
    assert found[0].probability == pytest.approx(0.25)


def test_hole_is_found_but_a_class_inside_another_is_none():
    mask = disc(30, 30) - disc(30, 30, 2)
    assert kinds(mask) == ["hole"]
    assert kinds(mask + 2 * disc(30, 30, 2)) == []


@pytest.mark.parametrize("volume", [True, False])
def test_class_absent_between_two_slices_that_have_it_is_found(volume: bool):
    full, empty = disc(30, 30), np.zeros((64, 64), np.uint8)
    masks = [full, empty, full, empty, empty]
    places = [
        place(f"v#{i:03d}" if volume else f"case_slice{i}", mask, slice_index=i if volume else None)
        for i, mask in enumerate(masks)
    ]
    found = list(absent_classes(places))
    assert [(name, issue.kind, issue.suggested) for name, issue in found] == [(places[1].id, "class_absent", 1)]


def test_numbers_of_other_series_are_no_neighbours():
    full, empty = disc(30, 30), np.zeros((64, 64), np.uint8)
    names = ["a_frame1_slice1", "a_frame2_slice2", "a_frame1_slice3"]
    assert not list(absent_classes([place(n, m) for n, m in zip(names, [full, empty, full], strict=True)]))


def test_swapped_masks_are_found():
    truth = [disc(12, 12), disc(12, 50), disc(50, 12), disc(50, 50), disc(31, 31)]
    given = [truth[1], truth[0], *truth[2:]]
    image = np.zeros((1, 64, 64), np.float32)
    prints = np.stack([fingerprint(image, g, predicted(t)) for g, t in zip(given, truth, strict=True)])
    assert prints.shape[1] == fingerprint_size(2)
    found = list(mismatched_pairs([place(f"i{n}", g) for n, g in enumerate(given)], prints, classes=2))
    assert [(name, issue.kind) for name, issue in found] == [("i0", "mismatched_pair"), ("i1", "mismatched_pair")]
    assert not list(mismatched_pairs([place(f"i{n}", t) for n, t in enumerate(truth)], _prints(truth), classes=2))


def _prints(masks: list[np.ndarray]) -> np.ndarray:
    return np.stack([fingerprint(np.zeros((1, 64, 64), np.float32), m, predicted(m)) for m in masks])


def test_copies_with_different_masks_are_found_and_with_equal_ones_not():
    rng = np.random.default_rng(0)
    image, other = rng.random((2, 1, 64, 64)).astype(np.float32)
    noisier = (image + rng.normal(0, 0.01, image.shape)).astype(np.float32)  # as after JPEG
    masks = [disc(30, 30), disc(30, 40), disc(30, 30), disc(20, 20)]
    images = [image, noisier, image, other]
    prints = np.stack([fingerprint(i, m, predicted(m)) for i, m in zip(images, masks, strict=True)])
    found = list(duplicate_conflicts([place(f"i{n}", m) for n, m in enumerate(masks)], prints))
    assert [name for name, _ in found] == ["i0", "i1", "i2"]
    assert not list(duplicate_conflicts([place("i0", masks[0]), place("i2", masks[2])], prints[[0, 2]]))


def test_thumbnails_of_images_smaller_than_the_grid_exist():
    small = np.ones((5, 9), np.uint8)
    assert fingerprint(np.ones((3, 5, 9), np.float32), small, predicted(small)).max() == 255
