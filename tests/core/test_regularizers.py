import math

import pytest
import torch
from reference import four_loop_theorem

from jcas.core import asymmetric, class_affinity_consistency, class_to_affinity, sparsity, symmetric, volume

PRIOR = torch.tensor([0.8398, 0.0889, 0.0201, 0.0512], dtype=torch.float64)


def test_consistency_is_zero_for_the_implied_matrix_and_not_for_the_crossed_one():
    transition = symmetric(4, 0.5)
    implied = class_to_affinity(transition, PRIOR)
    assert class_affinity_consistency(transition, implied, PRIOR).item() < 1e-30
    crossed = implied.flip(0, 1)  # the listing's order: METHODS 1.4 item 1 gives .1975
    assert abs(class_affinity_consistency(transition, crossed, PRIOR).item() - 0.1975) < 5e-5


def test_consistency_matches_the_listing_in_value_and_gradient():
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    pair_weight = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    transition, pair_transition = weight.softmax(1), pair_weight.softmax(1)
    fast = class_affinity_consistency(transition, pair_transition, PRIOR)
    slow = torch.nn.MSELoss()(four_loop_theorem(transition, PRIOR), pair_transition)
    assert torch.allclose(fast, slow, rtol=1e-12)
    for left, right in zip(
        torch.autograd.grad(fast, (weight, pair_weight), retain_graph=True),
        torch.autograd.grad(slow, (weight, pair_weight)),
        strict=True,
    ):
        assert torch.allclose(left, right, atol=1e-12)


def test_regularizers_pass_gradcheck():
    def consistency(weight, pair_weight):
        return class_affinity_consistency(weight.softmax(1), pair_weight.softmax(1), PRIOR)

    def log_volume(weight):
        return volume(weight.softmax(1) + torch.eye(4, dtype=torch.float64))

    weights = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    pair_weights = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(consistency, (weights, pair_weights))
    assert torch.autograd.gradcheck(log_volume, (weights,))
    valid = torch.tensor([[True, False, True]])
    assert torch.autograd.gradcheck(
        lambda logits: sparsity(logits.softmax(1), valid),
        torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True),
    )


def test_volume_is_the_log_determinant():
    transition = asymmetric(4, 0.5, seed=2)
    assert abs(volume(transition).item() - math.log(abs(torch.det(transition).item()))) < 1e-12
    assert volume(torch.eye(3)).item() == 0
    # eigenvalues of symmetric noise: 1 and (1 - rate C / (C - 1)) three times
    assert abs(volume(symmetric(4, 0.3)).item() - 3 * math.log(1 - 0.3 * 4 / 3)) < 1e-12


def test_sparsity_is_least_for_one_hot_and_skips_invalid_pixels():
    one_hot, flat = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.full((4,), 0.25)
    probs = torch.stack([one_hot, flat], dim=1)[None]
    values = [sparsity(probs, torch.tensor([mask]), power=0.5).item() for mask in ([True, False], [False, True])]
    assert abs(values[0] - (1 + 3 * 1e-7**0.5)) < 1e-6 and abs(values[1] - 2) < 1e-6
    assert abs(sparsity(probs, power=0.5).item() - sum(values) / 2) < 1e-6


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="affinity_transition must be 2 x 2"):
        class_affinity_consistency(torch.eye(4), torch.eye(3), PRIOR)
    with pytest.raises(ValueError, match=r"power must lie in \(0, 1\), got 2"):
        sparsity(torch.rand(1, 2, 3), power=2)
    with pytest.raises(ValueError, match=r"valid must have shape \(1, 3\), got \(3,\)"):
        sparsity(torch.rand(1, 2, 3), torch.ones(3))
    with pytest.raises(ValueError, match="transition must be a square matrix"):
        volume(torch.ones(3))
