import numpy as np
import pytest

from jcas.audit.summary import summarise

RATES = ("class_noise_rate", "affinity_noise_rate")
TWO = np.array([[[6.0, 2.0], [0.0, 2.0]], [[3.0, 1.0], [4.0, 0.0]]])  # image, clean class, given class


def halves(wrong: np.ndarray) -> np.ndarray:
    """Images of two classes, each half of the pixels, with a share of wrong labels."""
    right = 1 - wrong
    return 500 * np.stack([np.stack([right, wrong], -1), np.stack([wrong, right], -1)], -2)


def varied(images: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(0.05, 0.4, images)


def test_two_images_by_hand():
    about = summarise(TWO)
    assert np.array(about["class_transition"]) == pytest.approx(np.array([[9 / 12, 3 / 12], [4 / 6, 2 / 6]]))
    assert about["prior"] == pytest.approx([12 / 18, 6 / 18])
    assert about["class_noise_rate"]["value"] == pytest.approx((3 + 4) / 18)
    # Ordered pairs as (different, different), (different, same), (same, different), (same, same) with clean first:
    # 24, 8, 24, 44 in the first image and 8, 24, 6, 26 in the second.
    assert np.array(about["affinity_transition"]) == pytest.approx(np.array([[32 / 64, 32 / 64], [30 / 100, 70 / 100]]))
    assert about["affinity_noise_rate"]["value"] == pytest.approx((32 / 100 + 30 / 64) / 2)


def test_equal_images_leave_no_doubt():
    about = summarise(np.repeat(TWO[:1], 30, axis=0))
    for rate in RATES:
        assert about[rate]["low"] == pytest.approx(about[rate]["value"], abs=1e-12)
        assert about[rate]["high"] == pytest.approx(about[rate]["value"], abs=1e-12)


@pytest.mark.parametrize("images", [60, 400])
def test_interval_of_varied_images_is_that_of_their_mean(images: int):
    wrong = varied(images)
    about = summarise(halves(wrong))
    for rate, each in zip(RATES, (wrong, 2 * wrong * (1 - wrong)), strict=True):
        half = 1.96 * each.std(ddof=1) / np.sqrt(images)
        assert about[rate]["value"] == pytest.approx(each.mean())
        assert about[rate]["low"] == pytest.approx(each.mean() - half, abs=0.2 * half)
        assert about[rate]["high"] == pytest.approx(each.mean() + half, abs=0.2 * half)


def test_large_images_weigh_more_in_the_class_rate_and_its_interval():
    wrong, size = varied(200), np.random.default_rng(8).integers(1, 20, 200)
    about = summarise(halves(wrong) * size[:, None, None])
    value = (wrong * size).sum() / size.sum()
    half = 1.96 * np.sqrt(np.square(size * (wrong - value)).sum()) / size.sum()
    assert about["class_noise_rate"]["value"] == pytest.approx(value)
    assert about["class_noise_rate"]["low"] == pytest.approx(value - half, abs=0.2 * half)
    assert about["class_noise_rate"]["high"] == pytest.approx(value + half, abs=0.2 * half)
    assert about["affinity_noise_rate"]["value"] == pytest.approx((2 * wrong * (1 - wrong)).mean())


def test_order_of_images_moves_only_the_ends_of_the_intervals():
    joints = halves(varied(100))
    about, again, other = summarise(joints), summarise(joints), summarise(joints[::-1].copy())
    assert again == about
    for key in ("class_transition", "affinity_transition", "prior"):
        assert np.array(other[key]) == pytest.approx(np.array(about[key]))
    for rate in RATES:
        assert other[rate]["value"] == pytest.approx(about[rate]["value"])
        slack = 0.2 * (about[rate]["high"] - about[rate]["low"])
        assert slack > 0 and other[rate] == pytest.approx(about[rate], abs=slack)


def test_images_without_a_label_change_nothing_but_the_class_interval():
    joints = halves(varied(50))
    about, more = summarise(joints), summarise(np.concatenate([joints, np.zeros((3, 2, 2))]))
    assert more["affinity_noise_rate"]["value"] == pytest.approx(about["affinity_noise_rate"]["value"])
    assert more["class_noise_rate"]["value"] == pytest.approx(about["class_noise_rate"]["value"])
    with pytest.raises(ValueError, match="every mask is ignored"):
        summarise(np.zeros((2, 2, 2)))
