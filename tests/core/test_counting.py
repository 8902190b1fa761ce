import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jcas.core import (
    asymmetric,
    clean_counts,
    confusion_counts,
    counted_transition,
    estimated_jaccard,
    from_counts,
    pair_counts,
    symmetric,
)
from jcas.core.counting import CERTAINTIES, CORE, certainty, counts_by_certainty, invertible, surest_share


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5))
def test_counts_match_loops_over_pixels_and_pairs(seed, num_classes):
    torch.manual_seed(seed)
    believed, noisy = torch.randint(0, num_classes, (2, 3, 4)), torch.randint(0, num_classes, (2, 3, 4))
    noisy[torch.rand(noisy.shape) < 0.2] = 255
    slow, slow_pairs = torch.zeros(2, num_classes, num_classes), torch.zeros(2, 2)
    for image in range(2):
        pixels = [
            (m, n) for m, n in zip(believed[image].flatten().tolist(), noisy[image].flatten().tolist(), strict=True)
        ]
        pixels = [(m, n) for m, n in pixels if n != 255]
        for m, n in pixels:
            slow[image, m, n] += 1
            for other_m, other_n in pixels:
                slow_pairs[int(m == other_m), int(n == other_n)] += 1
    confusion = confusion_counts(believed, noisy, num_classes)
    assert torch.equal(confusion, slow.double())
    assert torch.equal(pair_counts(confusion), slow_pairs.double())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 4), st.booleans())
def test_counts_by_certainty_match_a_loop_over_pixels(seed, num_classes, weighted):
    torch.manual_seed(seed)
    probs, noisy = (8 * torch.randn(2, num_classes, 3, 4)).softmax(1), torch.randint(0, num_classes, (2, 3, 4))
    noisy[torch.rand(noisy.shape) < 0.2] = 255
    weight = torch.rand(2, 3, 4) if weighted else None
    steps, slow = certainty(probs.amax(1)), torch.zeros(CERTAINTIES, num_classes, num_classes, dtype=torch.float64)
    for image, row, column in itertools.product(range(2), range(3), range(4)):
        sure, believed = probs[image, :, row, column].max(0)
        step = 256 if sure == 1 else min(256, int(-16 * math.log(1 - float(sure))))
        assert abs(step - steps[image, row, column]) <= 1  # a logarithm of float32 may fall on the other side
        if noisy[image, row, column] != 255:
            trust = 1.0 if weight is None else float(weight[image, row, column])
            slow[steps[image, row, column], believed, noisy[image, row, column]] += trust
    assert torch.allclose(counts_by_certainty(probs, noisy, weight=weight), slow)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_the_surest_quarter_is_taken_from_above(seed):
    torch.manual_seed(seed)
    counts = torch.zeros(CERTAINTIES, 2, 2, dtype=torch.float64)
    steps = torch.randint(0, CERTAINTIES, (40,))
    counts[steps, 0, torch.randint(0, 2, (40,))] += 1  # class 1 is never believed in
    share = surest_share(counts)
    assert (share[:, 1] == 0).all()
    size = counts[:, 0].sum(1)
    assert float((share[:, 0] * size).sum()) == pytest.approx(CORE * float(size.sum()))
    taken = [float(share[step, 0]) for step in range(CERTAINTIES) if size[step]]
    assert taken == sorted(taken) and sum(0 < part < 1 for part in taken) <= 1


@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_no_certainty_is_counted_of_what_is_no_probability_or_label(num_classes):
    probs, labels = torch.full((1, num_classes, 1, 2), 1 / num_classes), torch.zeros(1, 1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match="nan"):
        counts_by_certainty(torch.full_like(probs, float("nan")), labels)
    for label in (-1, num_classes):
        with pytest.raises(ValueError, match=f"label {label}"):
            counts_by_certainty(probs, labels.fill_(label))
    with pytest.raises(ValueError, match="shape"):
        counts_by_certainty(probs, labels[:, :, :1])
    assert certainty(torch.tensor([0.0, 1.0, 1.0 + 1e-6])).tolist() == [0, 256, 256]


def test_counting_the_truth_gives_the_matrix_of_the_noise():
    transition, clean = symmetric(4, 0.5), torch.multinomial(torch.tensor([0.7, 0.1, 0.1, 0.1]), 200_000, True)
    noisy = torch.multinomial(transition[clean], 1)[:, 0]
    counted = from_counts(confusion_counts(clean[None], noisy[None], 4).sum(0))
    assert torch.allclose(counted, transition, atol=0.01)


def test_weights_are_summed_instead_of_pixels():
    believed, noisy, weight = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1, 1]]), torch.tensor([[0.5, 0.0, 2.0]])
    assert confusion_counts(believed, noisy, 2, weight=weight).tolist() == [[[0.5, 0.0], [0.0, 2.0]]]


def test_a_class_never_believed_in_takes_the_overall_noise():
    counts = torch.tensor([[500.0, 300.0, 200.0], [0.0, 0.0, 0.0], [10.0, 10.0, 80.0]])
    transition = counted_transition(counts)
    rate = 1 - 580 / 1100
    assert torch.allclose(transition[1], symmetric(3, rate)[1], atol=1e-9)
    assert torch.allclose(transition[0], torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), atol=2e-3)
    assert torch.allclose(transition.sum(1), torch.ones(3, dtype=torch.float64))
    assert torch.equal(counted_transition(torch.zeros(3, 3)), torch.eye(3, dtype=torch.float64))


def test_rounding_of_fractional_weights_leaves_no_negative_pairs():
    torch.manual_seed(0)
    for num_classes in range(2, 9):
        one_label = torch.zeros(4, num_classes, num_classes, dtype=torch.float64)
        one_label[:, :, 0] = 100 * torch.rand(4, num_classes)  # observed as same: the other two counts are exactly 0
        pairs = pair_counts(one_label)
        assert (pairs >= 0).all() and (pairs[:, 0] < 1e-6).all()


def test_rounding_of_fractional_weights_leaves_no_negative_rate():
    torch.manual_seed(0)
    for _ in range(50):  # the diagonal and all of it, summed in another order
        agreed = torch.rand(7, dtype=torch.float64).diag()
        assert torch.allclose(counted_transition(agreed), torch.eye(7, dtype=torch.float64))


def test_bad_arguments_are_named():
    labels = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="believed holds label 3"):
        confusion_counts(labels + 3, labels, 3)
    with pytest.raises(ValueError, match="noisy holds label 7"):
        confusion_counts(labels, labels + 7, 3)
    with pytest.raises(ValueError, match=r"confusion must have shape \(B, C, C\), got \(2, 2\)"):
        pair_counts(torch.ones(2, 2))


def test_no_counted_row_has_its_largest_entry_beside_the_diagonal():
    torch.manual_seed(0)
    for _ in range(50):
        transition = counted_transition(100 * torch.rand(4, 4).double() ** 3)
        assert torch.allclose(transition.sum(1), torch.ones(4, dtype=torch.float64))
        assert (transition.diagonal() >= transition.amax(1) - 1e-12).all() and (transition >= 0).all()


def test_a_row_with_a_dominant_diagonal_is_left_as_counted_another_takes_the_overall_noise():
    counts = torch.tensor([[50.0, 30.0, 20.0], [10.0, 80.0, 10.0], [60.0, 10.0, 30.0]])
    transition = counted_transition(counts, doubt=0.0)
    assert torch.allclose(transition[:2], from_counts(counts)[:2])
    assert torch.allclose(transition[2], symmetric(3, 1 - 160 / 300)[2])


def test_a_model_that_calls_one_class_by_the_name_of_the_next_is_set_right():
    """Pixels of class 1 are labelled 1 (0.6) or 2 (0.4); a model that calls them 2 is better off calling them 1."""
    labels = torch.tensor([0.0, 0.6, 0.4], dtype=torch.float64)
    counts = torch.stack([torch.tensor([576.0, 384.0, 0.0]), torch.zeros(3), 40 * labels.float()])
    likelihood = counted_transition(counts).log() @ labels
    assert likelihood.argmax() == 1


@pytest.mark.parametrize("transition", [symmetric(3, 0.5), asymmetric(3, 0.4, seed=1)])
def test_true_confusion_is_estimated_from_noisy_labels_alone(transition):
    torch.manual_seed(0)
    clean = torch.multinomial(torch.tensor([0.8, 0.15, 0.05]), 300_000, True)
    believed = torch.where(torch.rand(clean.shape) < 0.1, (clean + 1) % 3, clean)  # a model that is wrong now and then
    noisy = torch.multinomial(transition[clean], 1)[:, 0]
    true = confusion_counts(believed[None], clean[None], 3)[0]
    observed = confusion_counts(believed[None], noisy[None], 3)[0]
    found = clean_counts(observed, transition)
    assert torch.allclose(found @ transition.double(), observed)
    assert torch.allclose(found / len(clean), true / len(clean), atol=0.006)
    assert (observed / len(clean) - true / len(clean)).abs().max() > 0.1  # what the labels say as they are


def test_labels_that_say_nothing_are_refused():
    for num_classes in (2, 3, 5):  # the rate at which every label is as likely as any other
        with pytest.raises(ValueError, match="no inverse"):
            clean_counts(torch.ones(num_classes, num_classes), symmetric(num_classes, 1 - 1 / num_classes))


def test_counts_of_several_images_must_be_summed():
    with pytest.raises(ValueError, match=r"counts must have shape \(3, 3\), summed over images; got \(3, 3, 3\)"):
        clean_counts(torch.ones(3, 3, 3), torch.eye(3))


def flipped(truth: torch.Tensor, transition: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(transition[truth.flatten()], 1).view_as(truth)


def test_the_score_against_the_truth_is_known_without_it():
    torch.manual_seed(0)
    truth = torch.zeros(1, 400, 400, dtype=torch.long)
    truth[:, 100:200, 100:300], truth[:, 250:300] = 1, 2
    believed = truth.roll(20, dims=2)  # outlines that are 20 pixels off
    transition = symmetric(3, 0.5)
    both = sum(((believed == c) & (truth == c)).sum() for c in (1, 2))
    either = sum(((believed == c) | (truth == c)).sum() for c in (1, 2))
    counts = confusion_counts(believed, flipped(truth, transition), 3)[0]
    assert float(estimated_jaccard(counts, transition)) == pytest.approx(float(both / either), abs=0.03)
    assert estimated_jaccard(counts, torch.eye(3)) < 0.5  # against the noisy labels as they are


@pytest.mark.parametrize("rate", [0.46, 0.48, 0.5, 0.52, 0.54])
def test_right_outlines_are_preferred_under_a_matrix_that_is_a_little_wrong(rate):
    """A rare class of which a T that is off by hundredths misjudges the size; a third class that is not there."""
    torch.manual_seed(0)
    truth, wide, narrow = (torch.zeros(40, 64, 64, dtype=torch.long) for _ in range(3))
    truth[:, 28:38, 28:38], wide[:, 26:40, 26:40], narrow[:, 30:36, 30:36] = 1, 1, 1
    strays = truth.clone()
    strays[:, 5, 5:8] = 2
    noisy = flipped(truth, symmetric(4, 0.5))
    counts = torch.stack([confusion_counts(each, noisy, 4).sum(0) for each in (truth, wide, narrow, strays)])
    found = estimated_jaccard(counts, symmetric(4, rate))
    assert found.argmax() == 0 and (found > 0).all()


def test_nothing_but_background_overlaps_nothing():
    transition = symmetric(3, 0.5)
    counts = torch.zeros(3, 3, dtype=torch.float64)
    counts[0] = 100 * transition[0]
    assert estimated_jaccard(counts, transition) == 0
    assert not invertible(torch.full((3, 3), 1 / 3)) and invertible(transition)
