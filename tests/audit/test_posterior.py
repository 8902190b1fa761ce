import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from jcas.audit.posterior import Conflicts, Judgement, count_confident, judge, surroundings, transition_from

T = np.array([[0.9, 0.1], [0.4, 0.6]])


def one_pixel(*probs: float) -> np.ndarray:
    return np.array(probs, dtype=np.float32).reshape(-1, 1, 1)


def test_posterior_is_bayes_rule_by_hand():
    # 0.7 * 0.1 = 0.07 against 0.3 * 0.6 = 0.18
    judged = judge(one_pixel(0.7, 0.3), np.array([[1]], np.uint8), T, neighbours=False, surprise=False)
    assert judged.posterior[:, 0, 0] == pytest.approx([0.28, 0.72])
    assert judged.wrongness[0, 0] == pytest.approx(0.28)
    assert judged.joint == pytest.approx(np.array([[0, 0.28], [0, 0.72]]))


def test_excess_is_observed_minus_expected_disagreement():
    # observed 1 - 0.3 = 0.7, expected 1 - 0.49 - 0.09 = 0.42
    judged = judge(one_pixel(0.7, 0.3), np.array([[1]], np.uint8), T)
    assert judged.excess == pytest.approx(0.28)


def test_quality_falls_with_excess_and_with_the_error_beside_the_structures():
    def quality(wrong: float, right: float, excess: float) -> float:
        joint = np.array([[1000.0, wrong], [0.0, right]])
        return Judgement(np.zeros((2, 1, 1), np.float32), np.zeros((1, 1), np.float32), joint, excess).quality

    assert quality(0, 50, -0.1) == 1
    assert quality(0, 50, 0.02) == pytest.approx(1 / 2)
    assert quality(9, 40, 0.0) == pytest.approx(1 / (1 + 0.5 * 9 / 50))
    assert quality(9, 10, 0.0) < quality(9, 400, 0.0)


def test_surprising_image_makes_each_conflict_more_suspicious():
    probs = np.broadcast_to(one_pixel(0.95, 0.05), (2, 8, 8)).copy()
    calm, odd = np.zeros((8, 8), np.uint8), np.zeros((8, 8), np.uint8)
    calm[0, 0] = 1
    odd[:, :4] = 1
    odd[0, 0] = 1
    judged = [judge(probs, mask, T, neighbours=False) for mask in (calm, odd)]
    assert judged[1].wrongness[0, 0] > judged[0].wrongness[0, 0]
    assert judged[1].quality < judged[0].quality


def test_small_image_is_judged_almost_as_if_nothing_were_odd():
    # 24 of 64 pixels wrong say little beside the prior of 300; 2,400 of 6,400 say much
    half = np.broadcast_to(one_pixel(0.95, 0.05), (2, 8, 8)).copy()
    small = np.zeros((8, 8), np.uint8)
    small[:, :3] = 1
    plain = judge(half, small, T, neighbours=False, surprise=False).wrongness[0, 0]
    little = judge(half, small, T, neighbours=False).wrongness[0, 0]
    much = judge(np.tile(half, (1, 10, 10)), np.tile(small, (10, 10)), T, neighbours=False).wrongness[0, 0]
    assert plain < little < plain + 0.05 < plain + 0.1 < much


def test_label_unlike_its_surroundings_is_more_suspicious():
    probs = np.full((2, 9, 9), 0.5, np.float32)
    alone, together = np.zeros((9, 9), np.uint8), np.ones((9, 9), np.uint8)
    alone[4, 4] = 1
    wrong = [judge(probs, mask, T, surprise=False).wrongness[4, 4] for mask in (alone, together)]
    assert wrong[0] > wrong[1]


def test_ignored_pixels_take_no_part_and_stay():
    probs = np.broadcast_to(one_pixel(0.99, 0.01), (2, 4, 4)).copy()
    given = np.ones((4, 4), np.uint8)
    given[:, 2:] = 255
    judged = judge(probs, given, T)
    repaired, _ = judged.repaired(given, confidence=0.5)
    assert judged.joint.sum() == pytest.approx(8)
    assert (judged.wrongness[:, 2:] == 0).all() and (repaired[:, 2:] == 255).all()
    assert surroundings(given, 2).sum(0) == pytest.approx(np.ones((4, 4)))


def test_repair_changes_only_pixels_above_the_confidence():
    probs = np.stack([np.linspace(0, 1, 50), np.linspace(1, 0, 50)]).reshape(2, 5, 10).astype(np.float32)
    given = np.ones((5, 10), np.uint8)
    judged = judge(probs, given, T)
    repaired, certainty = judged.repaired(given, confidence=0.9)
    changed = repaired != given
    assert changed.any() and not changed.all()
    assert (certainty[changed] >= 0.9).all()
    assert (judged.posterior[0][~changed] < 0.9).all()


@settings(max_examples=30, deadline=None)
@drawn(st.integers(2, 5), st.integers(0, 10_000))
def test_relabelling_the_classes_relabels_the_posterior(classes: int, seed: int):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(classes), size=(6, 7)).transpose(2, 0, 1).astype(np.float32)
    given = rng.integers(classes, size=(6, 7)).astype(np.uint8)
    transition = rng.dirichlet(np.ones(classes), size=classes)
    order = rng.permutation(classes)
    place = np.argsort(order).astype(np.uint8)
    plain = judge(probs, given, transition)
    turned = judge(probs[order], place[given], transition[np.ix_(order, order)])
    assert turned.posterior == pytest.approx(plain.posterior[order], abs=1e-5)
    assert plain.posterior.sum(0) == pytest.approx(np.ones((6, 7)), abs=1e-5)
    assert plain.joint.sum() == pytest.approx(42, rel=1e-5)


def test_confident_counts_give_back_the_flips():
    rng = np.random.default_rng(0)
    clean = rng.integers(3, size=(200, 200))
    flips = np.array([[0.8, 0.15, 0.05], [0.1, 0.9, 0.0], [0.3, 0.0, 0.7]])
    given = (rng.random((200, 200, 1)) > flips[clean].cumsum(-1)).sum(-1).astype(np.uint8)
    probs = np.where(np.arange(3)[:, None, None] == clean, 0.9, 0.05).astype(np.float32)
    assert transition_from(count_confident(probs, given)) == pytest.approx(flips, abs=0.02)


def test_rate_is_counted_where_there_is_something_to_decide():
    probs = np.stack([np.full((4, 4), 0.999), np.full((4, 4), 0.001)]).astype(np.float32)
    probs[:, 0] = [[0.6], [0.4]]  # four doubtful pixels
    given = np.zeros((4, 4), np.uint8)
    given[0, 0] = given[3, 3] = 1  # a conflict in doubt, and one against a sure prediction
    given[0, 1] = 255
    found = Conflicts().plus(probs, given)
    assert (found.conflicts, found.contested) == (2, 4)
    assert found.plus(probs, given) == Conflicts(4, 8)


def test_noise_is_never_absent_and_never_total():
    assert Conflicts().transition(4).min() == pytest.approx(1e-3)
    assert Conflicts(9, 9).transition(3).diagonal() == pytest.approx([0.5] * 3)
