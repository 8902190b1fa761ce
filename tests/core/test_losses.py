import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dense_affinity_loss, looped_cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jcas.core import Affinity, asymmetric, corrected_affinity_loss, corrected_cross_entropy, pairs, refine, symmetric

SPATIAL = [(6, 7), (3, 4, 4)]
PAIR_NOISE = torch.tensor([[0.7, 0.3], [0.55, 0.45]], dtype=torch.float64)


def labels_with_gaps(*shape: int, classes: int = 4) -> torch.Tensor:
    labels = torch.randint(0, classes, shape)
    labels[torch.rand(shape) < 0.2] = 255
    labels[0, ...] = torch.where(labels[0] == 255, 255, 2)  # an image of one class
    return labels


# --- class level -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spatial", SPATIAL)
def test_cross_entropy_matches_the_loop_in_value_and_gradient(spatial):
    logits = torch.randn(2, 4, *spatial, dtype=torch.float64, requires_grad=True)
    transition = asymmetric(4, 0.4, seed=1).requires_grad_()
    noisy = labels_with_gaps(2, *spatial)
    results = []
    for form in (corrected_cross_entropy, looped_cross_entropy):
        value = form(logits.softmax(1), noisy, transition)
        results.append((value, *torch.autograd.grad(value, (logits, transition))))
    for fast, slow in zip(*results, strict=True):
        assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spatial", SPATIAL)
def test_evidence_weighs_the_classes_in_value_and_gradient(spatial):
    logits = torch.randn(2, 4, *spatial, dtype=torch.float64, requires_grad=True)
    transition = asymmetric(4, 0.4, seed=1).requires_grad_()
    noisy, evidence = labels_with_gaps(2, *spatial), torch.rand(2, 4, *spatial, dtype=torch.float64)
    results = []
    for form in (corrected_cross_entropy, looped_cross_entropy):
        value = form(logits.softmax(1), noisy, transition, evidence=evidence)
        results.append((value, *torch.autograd.grad(value, (logits, transition))))
    for fast, slow in zip(*results, strict=True):
        assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-12)


def test_evidence_is_a_constant():
    probs, noisy = torch.randn(2, 4, 5, 5).softmax(1), labels_with_gaps(2, 5, 5)
    transition, evidence = symmetric(4, 0.3).requires_grad_(), torch.rand(2, 4, 5, 5, requires_grad=True)
    corrected_cross_entropy(probs, noisy, transition, evidence=evidence).backward()
    assert evidence.grad is None and transition.grad is not None


def test_evidence_for_nothing_in_particular_changes_nothing():
    probs, noisy = torch.randn(2, 4, 5, 5, dtype=torch.float64).softmax(1), labels_with_gaps(2, 5, 5)
    plain = corrected_cross_entropy(probs, noisy, symmetric(4, 0.3))
    said = corrected_cross_entropy(probs, noisy, symmetric(4, 0.3), evidence=torch.ones_like(probs))
    assert torch.allclose(plain, said, rtol=1e-12)


def test_cross_entropy_passes_gradcheck():
    noisy = labels_with_gaps(2, 3, 2, classes=3)

    def loss(logits, weight):
        return corrected_cross_entropy(logits.softmax(1), noisy, weight.softmax(1))

    inputs = (torch.randn(2, 3, 3, 2, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64))
    assert torch.autograd.gradcheck(loss, tuple(x.requires_grad_() for x in inputs))


def test_identity_transition_is_cross_entropy():
    logits, noisy = torch.randn(2, 5, 8, 8), torch.randint(0, 5, (2, 8, 8))
    noisy[0, :2] = 255
    plain = torch.nn.functional.cross_entropy(logits, noisy, ignore_index=255)
    assert torch.allclose(corrected_cross_entropy(logits.softmax(1), noisy, torch.eye(5)), plain, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.permutations(range(4)))
def test_renaming_classes_changes_neither_loss(seed, order):
    torch.manual_seed(seed)
    logits = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    transition, noisy = asymmetric(4, 0.3, seed), torch.randint(0, 4, (2, 5, 5))
    new_name = torch.tensor(order).argsort()
    before = corrected_cross_entropy(logits.softmax(1), noisy, transition)
    after = corrected_cross_entropy(logits.softmax(1)[:, order], new_name[noisy], transition[order][:, order])
    assert torch.allclose(before, after, atol=1e-12)
    affinity = Affinity(torch.rand(2, 3, 5, 5, dtype=torch.float64))
    assert torch.allclose(
        corrected_affinity_loss(affinity, noisy, PAIR_NOISE),
        corrected_affinity_loss(affinity, new_name[noisy], PAIR_NOISE),
        atol=1e-12,
    )


def test_true_matrix_makes_the_true_posterior_the_minimum():
    # At the population level the corrected loss of the clean posterior is the noisy entropy, and no other is below.
    transition, clean = symmetric(3, 0.5), torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    noisy_share = clean @ transition

    def expected_loss(prediction):
        return -(noisy_share * (prediction @ transition).log()).sum()

    others = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((200,))
    assert all(expected_loss(other) >= expected_loss(clean) for other in others)


def test_cross_entropy_weights_pixels():
    probs, noisy = torch.randn(1, 2, 4).softmax(1), torch.tensor([[0, 1, 1, 0]])
    weight = torch.tensor([[1.0, 0.0, 0.5, 0.0]])
    each = [corrected_cross_entropy(probs[..., i : i + 1], noisy[:, i : i + 1], torch.eye(2)) for i in range(4)]
    expected = (each[0] + 0.5 * each[2]) / 1.5
    assert torch.allclose(corrected_cross_entropy(probs, noisy, torch.eye(2), weight=weight), expected)


# --- affinity level --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [4, 16, 512])
@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("table", [PAIR_NOISE, torch.eye(2, dtype=torch.float64)], ids=["corrected", "uncorrected"])
def test_affinity_loss_matches_the_dense_form_in_value_and_gradient(monkeypatch, tile, spatial, weighted, table):
    monkeypatch.setattr(pairs, "TILE", tile)
    features = torch.randn(3, 5, *spatial, dtype=torch.float64, requires_grad=True)
    noisy = labels_with_gaps(3, *spatial)
    weight = torch.rand(3, *spatial, dtype=torch.float64) if weighted else torch.ones(3, *spatial, dtype=torch.float64)
    weight[1, 0] = 0.0
    transition = table.clone().requires_grad_()
    fast = corrected_affinity_loss(Affinity(features), noisy, transition, weight=weight)
    slow = dense_affinity_loss(features, noisy, transition, weight)
    assert torch.allclose(fast, slow, rtol=1e-12)
    gradients = [torch.autograd.grad(loss, (features, transition)) for loss in (fast, slow)]
    for left, right in zip(*gradients, strict=True):
        assert torch.allclose(left, right, rtol=1e-7, atol=1e-9 * right.abs().max().item())


def test_affinity_loss_passes_gradcheck():
    noisy = labels_with_gaps(2, 3, 3, classes=3)

    def loss(features, weight):
        return 3 * corrected_affinity_loss(Affinity(features), noisy, weight.softmax(1))

    features = torch.rand(2, 4, 3, 3, dtype=torch.float64) + 0.1
    weight = torch.randn(2, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(loss, (features.requires_grad_(), weight.requires_grad_()))


def test_value_without_gradient_equals_value_with_gradient():
    features, noisy = torch.rand(2, 8, 9, 9, requires_grad=True), torch.randint(0, 3, (2, 9, 9))
    with torch.no_grad():
        alone = corrected_affinity_loss(Affinity(features), noisy, PAIR_NOISE)
    assert alone.item() == corrected_affinity_loss(Affinity(features), noisy, PAIR_NOISE).item()
    assert not alone.requires_grad


@pytest.mark.parametrize("run_lengths", [[1], [3, 700, 1, 520], [1300], [2] * 40, [5, 2000]])
def test_tiles_cover_each_pair_once(run_lengths):
    labels = torch.repeat_interleave(torch.arange(len(run_lengths)), torch.tensor(run_lengths))
    seen = torch.zeros(len(labels), len(labels), dtype=torch.int8)
    for kind, row, row_end, column, column_end in pairs._tiles(run_lengths):
        seen[row:row_end, column:column_end] += 1
        same = labels[row:row_end, None] == labels[None, column:column_end]
        assert bool((same == bool(kind)).all())
        assert (row_end - row) * (column_end - column) <= pairs.TILE**2
        if row != column:
            seen[column:column_end, row:row_end] += 1
    assert bool((seen == 1).all())


def test_sampled_loss_has_the_exact_loss_as_expectation():
    features, noisy = torch.rand(2, 6, 8, 8, dtype=torch.float64), labels_with_gaps(2, 8, 8)
    weight = torch.rand(2, 8, 8, dtype=torch.float64)
    affinity, generator = Affinity(features), torch.Generator().manual_seed(1)
    exact = corrected_affinity_loss(affinity, noisy, PAIR_NOISE, weight=weight).item()
    draws = torch.tensor(
        [
            corrected_affinity_loss(
                affinity, noisy, PAIR_NOISE, weight=weight, max_pairs=200, generator=generator
            ).item()
            for _ in range(2000)
        ]
    )
    standard_error = draws.std().item() / math.sqrt(len(draws))
    assert standard_error < 0.01 * exact
    assert abs(draws.mean().item() - exact) < 4 * standard_error


def test_sampled_gradient_has_the_exact_gradient_as_expectation():
    features = torch.rand(1, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    noisy, generator = torch.randint(0, 3, (1, 5, 5)), torch.Generator().manual_seed(2)
    table = PAIR_NOISE.clone().requires_grad_()

    def gradients(**options):
        loss = corrected_affinity_loss(Affinity(features), noisy, table, **options)
        return [g.flatten() for g in torch.autograd.grad(loss, (features, table))]

    exact = torch.cat(gradients())
    draws = torch.stack([torch.cat(gradients(max_pairs=100, generator=generator)) for _ in range(1500)])
    error = (draws.mean(0) - exact).abs()
    assert bool((error < 5 * draws.std(0) / math.sqrt(len(draws)) + 1e-12).all())


def test_sampling_no_fewer_pairs_than_there_are_is_exact():
    affinity, noisy = Affinity(torch.rand(1, 3, 4, 4)), torch.randint(0, 2, (1, 4, 4))
    exact = corrected_affinity_loss(affinity, noisy, PAIR_NOISE)
    assert corrected_affinity_loss(affinity, noisy, PAIR_NOISE, max_pairs=256) == exact
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    first, second = (
        corrected_affinity_loss(affinity, noisy, PAIR_NOISE, max_pairs=50, generator=g) for g in generators
    )
    assert first == second != exact


@pytest.mark.parametrize("max_pairs", [None, 10])
def test_nothing_labelled_costs_nothing(max_pairs):
    features = torch.rand(2, 3, 4, 4, requires_grad=True)
    noisy = torch.full((2, 4, 4), 255)
    loss = corrected_affinity_loss(Affinity(features), noisy, PAIR_NOISE, max_pairs=max_pairs)
    loss.backward()
    assert loss.item() == 0 and torch.equal(features.grad, torch.zeros_like(features))
    assert corrected_cross_entropy(features.softmax(1), noisy, torch.eye(3)).item() == 0


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize("max_pairs", [None, 100_000])
def test_no_operation_returns_the_map(max_pairs):
    side = 36
    count = side * side
    assert count > pairs.TILE
    features = torch.rand(1, 16, side, side, requires_grad=True)
    coarse = torch.randn(1, 3, side, side, requires_grad=True)
    table = PAIR_NOISE.float().requires_grad_()
    with LargestTensor() as recorder:
        affinity = Affinity(features)
        loss = corrected_affinity_loss(affinity, torch.randint(0, 3, (1, side, side)), table, max_pairs=max_pairs)
        refined = refine(coarse, affinity) + refine(coarse, affinity, cosine_reverse=True)
        (loss + refined.square().mean()).backward()
    assert pairs.TILE <= recorder.elements < count * count
    with LargestTensor() as recorder:
        Affinity(features).to_dense()
    assert recorder.elements == count * count  # the recorder can fail


def test_float32_gradient_of_the_pair_matrix_is_accurate():
    features, noisy = torch.randn(1, 32, 40, 40), torch.randint(0, 4, (1, 40, 40))
    gradients = []
    for dtype in (torch.float32, torch.float64):
        table = PAIR_NOISE.to(dtype).requires_grad_()
        corrected_affinity_loss(Affinity(features.to(dtype)), noisy, table).backward()
        gradients.append(table.grad.double())
    assert ((gradients[0] - gradients[1]).abs() / gradients[1].abs()).max() < 1e-5


def test_a_second_derivative_is_refused_in_words():
    features = torch.rand(1, 3, 4, 4, requires_grad=True)
    loss = corrected_affinity_loss(Affinity(features), torch.randint(0, 2, (1, 4, 4)), PAIR_NOISE)
    (gradient,) = torch.autograd.grad(loss, features, create_graph=True)
    with pytest.raises(RuntimeError, match="corrected_affinity_loss has no second derivative"):
        gradient.square().sum().backward()


def test_the_sampled_form_has_a_second_derivative():
    features = torch.rand(1, 3, 2, 2, dtype=torch.float64) + 0.1
    noisy = torch.tensor([[[0, 1], [1, 0]]])

    def loss(features):
        generator = torch.Generator().manual_seed(4)
        return corrected_affinity_loss(Affinity(features), noisy, PAIR_NOISE, max_pairs=9, generator=generator)

    assert torch.autograd.gradgradcheck(loss, features.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_integer_type_are_read(dtype):
    affinity, labels = Affinity(torch.rand(1, 3, 4, 4)), torch.randint(0, 3, (1, 4, 4))
    expected = corrected_affinity_loss(affinity, labels, PAIR_NOISE)
    assert torch.equal(corrected_affinity_loss(affinity, labels.to(dtype), PAIR_NOISE), expected)
    probs = torch.rand(1, 3, 4, 4).softmax(1)
    plain = corrected_cross_entropy(probs, labels, torch.eye(3))
    assert torch.equal(corrected_cross_entropy(probs, labels.to(dtype), torch.eye(3)), plain)


def test_the_loss_is_never_negative():
    affinity = Affinity(torch.rand(1, 7, 1))
    assert corrected_affinity_loss(affinity, torch.zeros(1, 1, dtype=torch.long), torch.eye(2)).item() >= 0


def test_losses_work_under_autocast_and_a_compiled_model():
    torch.compiler.reset()
    model = torch.compile(torch.nn.Conv2d(3, 8, 3, padding=1), backend="aot_eager")
    noisy = torch.randint(0, 4, (2, 8, 8))

    def step():
        maps = model(torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(3)))
        loss = corrected_affinity_loss(Affinity(maps[:, :4]), noisy, PAIR_NOISE)
        return loss + corrected_cross_entropy(maps[:, 4:].softmax(1), noisy, symmetric(4, 0.3))

    plain = step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = step()
    assert lowered.dtype == torch.float32 and abs(lowered.item() - plain.item()) < 0.02
    lowered.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noisy": torch.zeros(1, 4, 5, dtype=torch.long)}, r"noisy must have shape \(1, 4, 4\), got \(1, 4, 5\)"),
        ({"noisy": torch.full((1, 4, 4), -3)}, "noisy holds label -3"),
        ({"noisy": torch.zeros(1, 4, 4)}, "noisy must hold integers, got dtype torch.float32"),
        ({"affinity_transition": torch.eye(3)}, r"affinity_transition must be 2 x 2, got shape \(3, 3\)"),
        ({"affinity_transition": torch.full((2, 2), 0.4)}, "rows of affinity_transition must sum to 1"),
        ({"weight": torch.ones(1, 4)}, r"weight must have shape \(1, 4, 4\)"),
        ({"weight": torch.full((1, 4, 4), -1.0)}, "weight must be finite and not negative"),
        ({"max_pairs": 0}, "max_pairs must be a whole number of at least 1, got 0"),
        ({"max_pairs": 4.5}, "max_pairs must be a whole number of at least 1, got 4.5"),
    ],
)
def test_bad_arguments_of_the_affinity_loss_are_named(change, message):
    arguments = {"noisy": torch.zeros(1, 4, 4, dtype=torch.long), "affinity_transition": torch.eye(2), **change}
    with pytest.raises(ValueError, match=message):
        corrected_affinity_loss(Affinity(torch.rand(1, 2, 4, 4)), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noisy": torch.full((1, 4, 4), 3)}, r"noisy holds label 3, allowed are 0..2 and 255 \(ignore\)"),
        ({"transition": torch.eye(4)}, r"transition must be 3 x 3, got shape \(4, 4\)"),
        ({"probs": torch.full((1, 3, 4, 4), float("nan"))}, r"probs holds nan at index \(0, 0, 0, 0\)"),
        ({"probs": torch.randn(1, 3, 4, 4)}, r"probs must not be negative \(are these logits\?\)"),
        ({"probs": torch.rand(1, 3, 4, 4) + 5}, "probs must sum to 1 over the classes"),
        ({"transition": torch.eye(3, dtype=torch.long)}, "transition must be floating point, got dtype torch.int64"),
        ({"probs": torch.rand(3, 4)}, r"probs must have shape \(batch, channels, \*spatial\)"),
        ({"evidence": torch.ones(1, 3, 4)}, r"evidence must have shape \(1, 3, 4, 4\)"),
        ({"evidence": torch.full((1, 3, 4, 4), -1.0)}, "evidence must be finite and not negative"),
    ],
)
def test_bad_arguments_of_the_cross_entropy_are_named(change, message):
    arguments = {
        "probs": torch.rand(1, 3, 4, 4).softmax(1),
        "noisy": torch.zeros(1, 4, 4, dtype=torch.long),
        "transition": torch.eye(3),
        **change,
    }
    with pytest.raises(ValueError, match=message):
        corrected_cross_entropy(**arguments)
