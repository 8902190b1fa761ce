"""Flips follow their transition matrix exactly, in the long run."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jcas import core
from jcas.noise import Asymmetric, Matrix, PairFlip, Symmetric, rng_for
from jcas.noise.flip import flip


def empirical(clean: np.ndarray, noisy: np.ndarray, num_classes: int) -> torch.Tensor:
    counts = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(counts, (clean.ravel(), noisy.ravel()), 1)
    return core.from_counts(torch.from_numpy(counts))


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        (Symmetric(num_classes=4, rate=0.5), core.symmetric(4, 0.5)),
        (Asymmetric(num_classes=3, rate=0.3, matrix_seed=5), core.asymmetric(3, 0.3, seed=5)),
        (PairFlip(num_classes=4, rate=0.2), core.pair_flip(4, 0.2)),
        (Matrix(num_classes=2, matrix=((0.9, 0.1), (0.6, 0.4))), torch.tensor([[0.9, 0.1], [0.6, 0.4]])),
    ],
)
def test_empirical_transition_approaches_the_true_one(noise, expected):
    mask = np.repeat(np.arange(noise.num_classes, dtype=np.uint8), 100_000).reshape(noise.num_classes, -1)
    measured = empirical(mask, noise(mask, rng_for(0, "a")), noise.num_classes)
    # 5 standard deviations of a share counted over 100 000 pixels
    assert torch.allclose(measured, expected.double(), atol=5 * 0.5 / 100_000**0.5, rtol=0)
    assert torch.equal(noise.transition, expected.double()) or torch.allclose(noise.transition, expected.double())


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_flip_never_gives_a_label_of_probability_zero(num_classes, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.random((num_classes, num_classes)) * (rng.random((num_classes, num_classes)) < 0.5)
    matrix[np.arange(num_classes), rng.integers(num_classes, size=num_classes)] += 0.1
    transition = torch.from_numpy(matrix / matrix.sum(1, keepdims=True))
    mask = rng.integers(num_classes, size=(20, 20)).astype(np.uint8)
    noisy = flip(mask, transition, rng)
    assert (transition.numpy()[mask, noisy] > 0).all()


def test_identity_changes_nothing():
    mask = np.random.default_rng(0).integers(3, size=(30, 30)).astype(np.uint8)
    assert np.array_equal(flip(mask, torch.eye(3), np.random.default_rng(1)), mask)


def test_flips_of_neighbours_are_independent():
    mask = np.zeros((400, 400), np.uint8)
    wrong = Symmetric(num_classes=2, rate=0.3)(mask, rng_for(0, "a")) == 1
    together = (wrong[:, 1:] & wrong[:, :-1]).mean()
    assert abs(together - 0.09) < 0.005


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
@pytest.mark.parametrize("noise", [Symmetric, Asymmetric, PairFlip])
def test_rate_out_of_range_is_named(noise, rate):
    with pytest.raises(ValueError, match=f"rate .*{rate}"):
        noise(num_classes=3, rate=rate)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (((0.9, 0.2), (0.1, 0.9)), "row 0 sums to 1.1"),
        (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), "2 x 2"),
        (((1.0, 0.0), (1.0,)), "rows of one length"),
        (((1.2, -0.2), (0.0, 1.0)), "-0.2"),
    ],
)
def test_bad_matrix_is_named(matrix, message):
    with pytest.raises(ValueError, match=message):
        Matrix(num_classes=2, matrix=matrix)
