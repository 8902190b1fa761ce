import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import four_loop_theorem

from jcas.core import affinity_noise_rate, class_noise_rate, class_to_affinity, pair_flip, symmetric

ENDOVIS18 = torch.tensor([0.8398, 0.0889, 0.0201, 0.0512], dtype=torch.float64)


def random_case(seed: int, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    concentration = torch.full((num_classes,), 0.5, dtype=torch.float64)
    dirichlet = torch.distributions.Dirichlet(concentration)
    return dirichlet.sample((num_classes,)), dirichlet.sample()


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 8))
def test_theorem_stays_within_zero_and_one(seed, num_classes):
    for dtype in (torch.float64, torch.float32):
        transition, prior = (x.to(dtype) for x in random_case(seed, num_classes))
        result = class_to_affinity(transition / transition.sum(1, keepdim=True), prior)
        assert (result >= 0).all() and (result <= 1).all()
        assert torch.allclose(result.sum(1), torch.ones(2, dtype=dtype))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 6))
def test_theorem_matches_the_four_loops_in_value_and_gradient(seed, num_classes):
    transition, prior = (x.requires_grad_() for x in random_case(seed, num_classes))
    weights = torch.randn(2, 2, dtype=torch.float64)
    results = []
    for form in (class_to_affinity, four_loop_theorem):
        value = form(transition, prior)
        results.append((value, *torch.autograd.grad((value * weights).sum(), (transition, prior))))
    for fast, slow in zip(*results, strict=True):
        if fast.shape == transition.shape and fast is not results[0][0]:
            # Rows are constrained to sum to 1: only the part of the gradient along the simplex has a meaning.
            fast, slow = fast - fast.mean(1, keepdim=True), slow - slow.mean(1, keepdim=True)
        assert torch.allclose(fast, slow, rtol=1e-8, atol=1e-8)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 8), st.randoms())
def test_theorem_does_not_care_for_class_names(seed, num_classes, random):
    transition, prior = random_case(seed, num_classes)
    order = list(range(num_classes))
    random.shuffle(order)
    renamed = class_to_affinity(transition[order][:, order], prior[order])
    assert torch.allclose(renamed, class_to_affinity(transition, prior), atol=1e-12)


@given(st.integers(0, 2**31), st.integers(2, 8))
def test_no_class_noise_is_no_pair_noise(seed, num_classes):
    _, prior = random_case(seed, num_classes)
    identity = torch.eye(num_classes, dtype=torch.float64)
    assert torch.allclose(class_to_affinity(identity, prior + 1e-3), torch.eye(2, dtype=torch.float64), atol=1e-15)


def test_theorem_gives_the_published_check_values():
    # METHODS section 2, brute force: symmetric 0.5 with the EndoVis18 prior.
    expected = torch.tensor([[7 / 9, 2 / 9], [2 / 3, 1 / 3]], dtype=torch.float64)
    assert torch.allclose(class_to_affinity(symmetric(4, 0.5), ENDOVIS18), expected, atol=1e-12)


def test_theorem_matches_a_simulation():
    transition, prior = pair_flip(4, 0.3), ENDOVIS18 / ENDOVIS18.sum()
    clean = torch.multinomial(prior, 400_000, replacement=True)
    noisy = torch.multinomial(transition[clean], 1)[:, 0]
    clean_same, noisy_same = clean[::2] == clean[1::2], noisy[::2] == noisy[1::2]
    result = class_to_affinity(transition, prior)
    for kind in (0, 1):
        simulated = noisy_same[clean_same == bool(kind)].double().mean()
        assert abs(simulated - result[kind, 1]) < 0.01


def test_one_class_present_gives_no_nan_and_no_nan_gradient():
    transition = symmetric(3, 0.4).requires_grad_()
    prior = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    result = class_to_affinity(transition, prior)
    assert torch.equal(result[0].detach(), torch.tensor([1.0, 0.0], dtype=torch.float64))
    result.square().sum().backward()
    assert transition.grad.isfinite().all() and prior.grad.isfinite().all()


def test_a_prior_close_to_one_class_keeps_its_digits_in_float32():
    transition = symmetric(4, 0.5)
    prior = torch.tensor([1 - 3e-9, 1e-9, 1e-9, 1e-9], dtype=torch.float64)
    exact, single = class_to_affinity(transition, prior), class_to_affinity(transition.float(), prior.float())
    assert torch.allclose(single.double(), exact, rtol=1e-5)


def test_counts_of_any_size_and_half_precision_matrices_are_taken():
    transition, prior = symmetric(3, 0.3), torch.tensor([3e38, 1e38, 1e38])
    expected = class_to_affinity(transition, torch.tensor([3.0, 1.0, 1.0]))
    assert torch.allclose(class_to_affinity(transition.float(), prior).double(), expected, atol=1e-6)
    assert torch.allclose(class_to_affinity(transition.half(), prior).double(), expected, atol=2e-3)


def test_theorem_passes_gradcheck():
    transition, prior = (x.requires_grad_() for x in random_case(5, 4))

    def on_the_simplex(weight, prior):
        return class_to_affinity(weight.softmax(1), prior)

    assert torch.autograd.gradcheck(on_the_simplex, (transition.detach().log().requires_grad_(), prior))


@pytest.mark.parametrize(
    ("rate", "balanced", "endovis", "binary"),
    # METHODS 1.4 item 31: pair noise under symmetric class noise.
    [(0.1, 0.093, 0.151, 0.180), (0.2, 0.173, 0.281, 0.320), (0.3, 0.240, 0.389, 0.420), (0.5, 0.333, 0.541, 0.500)],
)
def test_noise_rates_match_the_known_table(rate, balanced, endovis, binary):
    def pair_rate(num_classes, prior):
        return affinity_noise_rate(symmetric(num_classes, rate), torch.tensor(prior, dtype=torch.float64)).item()

    assert abs(pair_rate(4, [1.0, 1.0, 1.0, 1.0]) - balanced) < 6e-4
    assert abs(pair_rate(4, ENDOVIS18.tolist()) - endovis) < 6e-4
    assert abs(pair_rate(2, [0.9, 0.1]) - binary) < 6e-4
    assert abs(class_noise_rate(symmetric(4, rate), ENDOVIS18).item() - rate) < 1e-12


@pytest.mark.parametrize(
    ("transition", "prior", "message"),
    [
        (torch.ones(2, 3), torch.ones(2), r"transition must be a square matrix.*\(2, 3\)"),
        (torch.full((2, 2), 0.6), torch.ones(2), "rows of transition must sum to 1, row 0 sums to 1.2"),
        (torch.eye(2), torch.ones(3), r"prior must have shape \(2,\), got \(3,\)"),
        (torch.eye(2), torch.tensor([0.5, -0.5]), "prior must be non-negative"),
        (torch.eye(2), torch.zeros(2), "not all zero"),
        (torch.eye(2), torch.tensor([float("nan"), 1.0]), "prior must be non-negative, finite"),
    ],
)
def test_bad_arguments_are_named(transition, prior, message):
    for function in (class_to_affinity, class_noise_rate, affinity_noise_rate):
        with pytest.raises(ValueError, match=message):
            function(transition, prior)
