import itertools

import pytest
import torch
from reference import looped_neighbour_evidence

from jcas.core import (
    asymmetric,
    confusion_counts,
    from_counts,
    neighbour_evidence,
    pair_flip,
    symmetric,
)
from jcas.core.neighbours import FARTHEST, LEAST_EVIDENCE, agreement_counts, independent_from


def regions(size: int = 96) -> torch.Tensor:
    """Four classes in a plane: background, a disc, a ring around it, a bar."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    radius = ((y - 40) ** 2 + (x - 40) ** 2).sqrt()
    truth = torch.where(radius < 24, 2, torch.zeros(size, size, dtype=torch.long))
    truth = torch.where(radius < 14, 1, truth)
    return torch.where((y > 76) & (y < 86), 3, truth)[None]


def flipped(truth: torch.Tensor, transition: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(transition[truth.flatten()], 1, generator=generator).view_as(truth)


def example(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Predictions, labels with gaps, a matrix, and trust in the labels."""
    torch.manual_seed(0)
    probs = (3 * torch.randn(2, 3, 7, 5, dtype=torch.float64)).softmax(1).to(dtype)
    noisy = torch.randint(0, 3, (2, 7, 5))
    noisy[0, 2, 1:3] = 255
    return probs, noisy, asymmetric(3, 0.4, seed=2), torch.rand(2, 7, 5, dtype=torch.float64)


@pytest.mark.parametrize("reach", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_evidence_matches_the_loop(reach, weighted):
    probs, noisy, transition, weight = example()
    trust = weight if weighted else None
    slow = looped_neighbour_evidence(probs, noisy, transition, reach, trust)
    slow = (slow / slow.amax(1, keepdim=True)).clamp_min(LEAST_EVIDENCE)
    fast = neighbour_evidence(probs, noisy, transition, weight=trust, reach=reach)
    assert torch.allclose(fast, slow, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_coarse_numbers_are_computed_in_float32(dtype):
    probs, noisy, transition, _ = example(dtype)
    found = neighbour_evidence(probs, noisy, transition)
    assert found.dtype == torch.float32
    assert torch.allclose(found, neighbour_evidence(probs.float(), noisy, transition))


def test_a_label_of_no_weight_says_nothing():
    probs, noisy, transition, _ = example()
    silent = torch.where(torch.arange(5) > 2, 255, noisy)
    weight = (silent != 255).double()
    assert torch.equal(
        neighbour_evidence(probs, noisy, transition, weight=weight), neighbour_evidence(probs, silent, transition)
    )


def test_a_pixel_does_not_testify_for_itself():
    torch.manual_seed(0)
    probs, noisy = torch.randn(1, 3, 9, 9).softmax(1), torch.randint(0, 3, (1, 9, 9))
    before = neighbour_evidence(probs, noisy, symmetric(3, 0.5))
    noisy[0, 4, 4] = (noisy[0, 4, 4] + 1) % 3
    changed = (neighbour_evidence(probs, noisy, symmetric(3, 0.5)) != before).any(1)[0].nonzero()
    apart = (changed - 4).abs().amax(1)
    assert len(changed) and bool((apart == 1).all())


def test_labels_are_pooled_where_predictions_are_alike_and_not_across_an_outline_that_the_model_sees():
    noisy = torch.zeros(1, 3, 4, dtype=torch.long)
    noisy[..., 2:] = 1
    transition = symmetric(2, 0.2)
    nothing_known = neighbour_evidence(torch.full((1, 2, 3, 4), 0.5), noisy, transition)[0, :, 1, 1]
    assert nothing_known[1] == pytest.approx((0.2 / 0.8) ** 2, rel=1e-4)  # five neighbours say 0, three say 1
    seen = torch.full((1, 2, 3, 4), 0.001)
    seen[:, 0, :, :2] = seen[:, 1, :, 2:] = 0.999
    outline_known = neighbour_evidence(seen, noisy, transition)[0, :, 1, 1]
    assert outline_known[1] < (0.2 / 0.8) ** 4.9  # those beyond the outline no longer speak for 1


def test_a_label_that_is_ignored_says_nothing():
    torch.manual_seed(0)
    probs = torch.randn(1, 3, 4, 4).softmax(1)
    silent = torch.full((1, 4, 4), 255)
    assert torch.equal(neighbour_evidence(probs, silent, symmetric(3, 0.5)), torch.ones(1, 3, 4, 4))


@pytest.mark.parametrize("transition", [symmetric(4, 0.5), asymmetric(4, 0.5, seed=0), pair_flip(4, 0.4)])
def test_neighbours_find_the_class_that_single_labels_hide(transition):
    truth = regions()
    noisy = flipped(truth, transition)
    ignorant = torch.full((1, 4, 96, 96), 0.25)
    believed = neighbour_evidence(ignorant, noisy, transition)
    believed = (believed * transition[:, noisy].movedim(0, 1)).argmax(1)
    assert (believed != truth).float().mean() < 0.5 * (noisy != truth).float().mean()


def test_counted_without_the_own_label_the_noise_is_found():
    transition, truth = pair_flip(4, 0.4), regions()
    noisy = flipped(truth, transition)
    believed = neighbour_evidence(torch.full((1, 4, 96, 96), 0.25), noisy, transition)
    sure, classes = believed.div(believed.sum(1, keepdim=True)).max(1)
    counted = from_counts(confusion_counts(classes, torch.where(sure > 0.99, noisy, 255), 4)[0])
    assert torch.allclose(counted, transition, atol=0.12)  # outlines that the model does not see blur it


def test_labels_repeated_by_enlarging_confirm_themselves_and_not_on_half_the_grid():
    transition, truth = symmetric(4, 0.5), regions()
    twice = flipped(truth, transition).repeat_interleave(2, 1).repeat_interleave(2, 2)
    shares = []
    for labels in (twice, twice[:, ::2, ::2]):
        ignorant = torch.full((1, 4, *labels.shape[1:]), 0.25)
        believed = neighbour_evidence(ignorant, labels, transition).argmax(1)
        shares.append(from_counts(confusion_counts(believed, labels, 4)[0])[0, 0].item())
    assert shares[0] > 0.6 and shares[1] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("factor", [1, 2, 3, 4, FARTHEST])
@pytest.mark.parametrize("transition", [symmetric(4, 0.5), symmetric(4, 0.05), pair_flip(4, 0.4)])
def test_labels_of_enlarged_masks_are_independent_from_the_factor_on(transition, factor):
    noisy = flipped(regions(), transition).repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    assert independent_from(agreement_counts(noisy)) == factor


@pytest.mark.parametrize("size", [(128, 96), (120, 120), (144, 144), (180, 100)])
def test_labels_enlarged_by_no_whole_factor_repeat_those_beside_them(size):
    noisy = flipped(regions(), symmetric(4, 0.5))[:, None].float()
    enlarged = torch.nn.functional.interpolate(noisy, size=size, mode="nearest-exact")[:, 0].long()
    assert independent_from(agreement_counts(enlarged)) == 2


def test_labels_of_reduced_masks_do_not_repeat():
    noisy = flipped(regions(), symmetric(4, 0.5))[:, None].float()
    reduced = torch.nn.functional.interpolate(noisy, size=(80, 72), mode="nearest-exact")[:, 0].long()
    assert independent_from(agreement_counts(reduced)) == 1


def test_agreement_is_counted_pair_by_pair():
    _, noisy, _, _ = example()
    counts = agreement_counts(noisy)
    for distance in range(1, FARTHEST + 2):
        pairs, same = 0, 0
        for image, y, x, (down, right) in itertools.product(range(2), range(7), range(5), ((1, 0), (0, 1))):
            y2, x2 = y + distance * down, x + distance * right
            if y2 < 7 and x2 < 5:
                labels = int(noisy[image, y, x]), int(noisy[image, y2, x2])
                pairs += 255 not in labels
                same += 255 not in labels and labels[0] == labels[1]
        assert counts[distance - 1].tolist() == [pairs, same]


def test_evidence_stays_between_its_bounds_where_the_matrix_knows_no_doubt():
    noisy = torch.zeros(1, 8, 8, dtype=torch.long)
    found = neighbour_evidence(torch.full((1, 2, 8, 8), 0.5), noisy, torch.eye(2))
    assert found.min() == pytest.approx(LEAST_EVIDENCE) and found.max() == 1
    torch.manual_seed(0)
    sure = (60 * torch.randn(1, 3, 8, 8)).softmax(1)  # probabilities that are 0 in float32
    assert bool(torch.isfinite(neighbour_evidence(sure, noisy, torch.eye(3))).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probs": torch.rand(1, 3, 4).softmax(1)}, r"probs must have shape \(B, C, H, W\)"),
        ({"probs": torch.randn(1, 3, 4, 4)}, "are these logits"),
        ({"noisy": torch.full((1, 4, 4), 7)}, "noisy holds label 7"),
        ({"transition": torch.eye(2)}, "transition must be 3 x 3"),
        ({"reach": 0}, "reach must be a whole number of at least 1, got 0"),
        ({"weight": torch.ones(1, 3, 4)}, r"weight must have shape \(1, 4, 4\)"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {
        "probs": torch.rand(1, 3, 4, 4).softmax(1),
        "noisy": torch.zeros(1, 4, 4, dtype=torch.long),
        "transition": torch.eye(3),
        **change,
    }
    with pytest.raises(ValueError, match=message):
        neighbour_evidence(**arguments)
