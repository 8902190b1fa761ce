import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jcas.core import FreeTransitionMatrix, TransitionMatrix, asymmetric, from_counts, pair_flip, symmetric

sizes = st.integers(2, 9)
rates = st.floats(0, 0.999)


@given(sizes, rates, st.integers(0, 2**31))
def test_constructors_rows_sum_to_one_with_the_rate_off_the_diagonal(num_classes, rate, seed):
    for matrix in (symmetric(num_classes, rate), asymmetric(num_classes, rate, seed), pair_flip(num_classes, rate)):
        assert torch.allclose(matrix.sum(1), torch.ones(num_classes, dtype=torch.float64), atol=1e-12)
        assert torch.allclose(matrix.diagonal(), torch.full((num_classes,), 1 - rate, dtype=torch.float64))
        assert (matrix >= 0).all()


@given(sizes, st.floats(-8, 8))
def test_learnable_rows_sum_to_one_for_any_weight(num_classes, weight):
    for module in (TransitionMatrix(num_classes), FreeTransitionMatrix(num_classes)):
        with torch.no_grad():
            module.weight.normal_(weight, 3)
        matrix = module()
        assert torch.allclose(matrix.sum(1), torch.ones(num_classes), atol=1e-6)
        assert (matrix >= 0).all()


def test_paper_form_starts_where_the_paper_starts():
    # METHODS: C = 4 diagonal .7366, off .0878; C = 2 diagonal .8935.
    four = TransitionMatrix(4)().detach()
    assert torch.allclose(four.diagonal(), torch.full((4,), 1 / (1 + 3 / (1 + math.exp(2)))))
    assert abs(four[0, 0].item() - 0.7366) < 5e-5 and abs(four[0, 1].item() - 0.0878) < 5e-5
    assert torch.allclose(FreeTransitionMatrix(4)().detach(), four)


def test_paper_form_cannot_fall_below_half_but_the_free_form_can():
    paper, free = TransitionMatrix(2), FreeTransitionMatrix(2)
    with torch.no_grad():
        paper.weight.fill_(50.0)
        free.weight.copy_(torch.tensor([[0.0, 2.0], [3.0, 0.0]]))
    assert paper().diagonal().min() >= 0.5
    assert free().diagonal().max() < 0.2


@pytest.mark.parametrize("module", [TransitionMatrix(3), FreeTransitionMatrix(3)])
def test_learnable_matrices_pass_gradcheck(module):
    module = module.double()

    def matrix(weight):
        return torch.func.functional_call(module, {"weight": weight}, ())

    assert torch.autograd.gradcheck(matrix, torch.randn(3, 3, dtype=torch.float64, requires_grad=True))


def test_asymmetric_depends_on_the_seed_only():
    assert torch.equal(asymmetric(4, 0.5, seed=3), asymmetric(4, 0.5, seed=3))
    assert not torch.equal(asymmetric(4, 0.5, seed=3), asymmetric(4, 0.5, seed=4))


@pytest.mark.parametrize("constructor", [symmetric, asymmetric, pair_flip])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_rates_outside_the_range_are_refused(constructor, rate):
    with pytest.raises(ValueError, match=rf"rate must lie in \[0, 1\), got {rate}"):
        constructor(3, rate)


@pytest.mark.parametrize(
    "constructor", [TransitionMatrix, FreeTransitionMatrix, lambda c: symmetric(c, 0.1), lambda c: pair_flip(c, 0.1)]
)
def test_fewer_than_two_classes_are_refused(constructor):
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        constructor(1)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (torch.ones(2, 3), r"counts must be a square matrix.*got shape \(2, 3\)"),
        (torch.tensor([[1.0, -2.0], [0.0, 1.0]]), "counts must not be negative, its smallest entry is -2"),
        (torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), "counts holds values that are not finite"),
    ],
)
def test_from_counts_refuses_what_is_no_count(counts, message):
    with pytest.raises(ValueError, match=message):
        from_counts(counts)


def test_free_form_refuses_an_initial_it_cannot_express():
    with pytest.raises(ValueError, match="initial must be positive"):
        FreeTransitionMatrix(2, initial=torch.eye(2))
    with pytest.raises(ValueError, match=r"row 0 sums to 1\.4"):
        FreeTransitionMatrix(2, initial=torch.full((2, 2), 0.7))
