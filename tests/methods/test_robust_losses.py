"""The losses of the comparison methods against numbers worked out by hand, and their limits."""

import math

import pytest
import torch

from jcas.methods.losses import (
    focal_loss,
    generalised_cross_entropy,
    lovasz_softmax,
    lovasz_weights,
    pixel_cross_entropy,
    reverse_cross_entropy,
    soft_cross_entropy,
    soft_dice_loss,
    trust,
    trusted_mean,
)
from jcas.methods.raunet import log_dice_loss
from jcas.methods.sce import SCE
from jcas.methods.svls import neighbour_kernel, smoothed_labels
from jcas.methods.tloss import TLoss, t_loss
from jcas.models import build_model
from jcas.schema import Batch

LOSSES = {
    "gce": lambda probs, noisy, weight: generalised_cross_entropy(probs, noisy, q=0.7, weight=weight),
    "reverse": lambda probs, noisy, weight: reverse_cross_entropy(probs, noisy, weight=weight),
    "focal": lambda probs, noisy, weight: focal_loss(probs, noisy, gamma=6.0, weight=weight),
    "lovasz": lambda probs, noisy, weight: lovasz_softmax(probs, noisy, weight=weight),
    "log_dice": lambda probs, noisy, weight: log_dice_loss(probs, noisy, weight=weight),
}


def random_maps(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(2, 3, 6, 7, generator=generator, dtype=torch.float64).softmax(1)
    return probs, torch.randint(0, 3, (2, 6, 7), generator=generator)


def cross_entropy(probs: torch.Tensor, noisy: torch.Tensor) -> float:
    return torch.nn.functional.nll_loss(probs.log(), noisy).item()


@pytest.mark.parametrize("name", LOSSES)
def test_a_pixel_that_does_not_count_gets_no_gradient_and_changes_nothing(name):
    probs, noisy = random_maps()
    weight = torch.ones(noisy.shape)
    weight[:, 2] = 0
    ignored = noisy.clone()
    ignored[:, 2] = 255
    leaf = probs.clone().requires_grad_()
    by_weight, by_label = LOSSES[name](leaf, noisy, weight), LOSSES[name](probs, ignored, None)
    assert by_weight.item() == pytest.approx(by_label.item(), abs=1e-12)
    by_weight.backward()
    assert (leaf.grad[:, :, 2] == 0).all() and leaf.grad[:, :, 3].abs().sum() > 0
    assert LOSSES[name](probs, torch.full_like(noisy, 255), None).item() == 0


def test_gce_is_cross_entropy_as_q_vanishes_and_half_the_absolute_error_at_one():
    probs, noisy = random_maps()
    nearly = generalised_cross_entropy(probs, noisy, q=1e-6).item()
    assert nearly == pytest.approx(cross_entropy(probs, noisy), abs=1e-5)
    truth = torch.nn.functional.one_hot(noisy, 3).movedim(-1, 1)
    absolute = (probs - truth).abs().sum(1).mean().item()  # 2 (1 - p)
    assert generalised_cross_entropy(probs, noisy, q=1.0).item() == pytest.approx(absolute / 2, abs=1e-9)


def test_reverse_cross_entropy_is_its_definition():
    probs, noisy = random_maps()
    truth = torch.nn.functional.one_hot(noisy, 3).movedim(-1, 1).double().clamp_min(1e-4)
    literal = -(probs * truth.log()).sum(1).mean().item()
    assert reverse_cross_entropy(probs, noisy).item() == pytest.approx(literal, rel=1e-6)


def test_focal_loss_without_focus_is_cross_entropy():
    probs, noisy = random_maps()
    assert focal_loss(probs, noisy, gamma=0.0).item() == pytest.approx(cross_entropy(probs, noisy), abs=1e-9)
    one = torch.tensor([0.8, 0.2]).view(1, 2, 1, 1)
    assert focal_loss(one, torch.zeros(1, 1, 1), gamma=6.0).item() == pytest.approx(0.2**6 * -math.log(0.8), rel=1e-5)


def test_lovasz_of_hard_predictions_is_one_minus_jaccard():
    truth = torch.tensor([[[0, 0, 1, 1, 1, 2]]])
    predicted = torch.tensor([[[0, 1, 1, 1, 0, 2]]])
    probs = torch.nn.functional.one_hot(predicted, 3).movedim(-1, 1).float()
    jaccards = (1 / 3, 2 / 4, 1)  # of classes 0, 1, 2
    assert lovasz_softmax(probs, truth).item() == pytest.approx(1 - sum(jaccards) / 3, abs=1e-6)


def test_lovasz_gradient_is_the_growth_of_the_jaccard_loss():
    # Pixel errors .7 .6 .3 .1 of truths 1 0 1 0: Jaccard losses 1/2, 2/3, 1, 1, so weights 1/2, 1/6, 1/3, 0.
    truth = torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert lovasz_weights(truth).tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 3, 0], abs=1e-6)
    foreground = torch.tensor([0.3, 0.6, 0.7, 0.1], requires_grad=True)
    probs = torch.stack([1 - foreground, foreground]).view(1, 2, 1, 4)
    lovasz_softmax(probs, truth.long().view(1, 1, 4)).backward()
    # Class 0 has the same errors in the same order, of truths 0 1 0 1.
    background = lovasz_weights(1 - truth)
    signs = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    expected = signs * (lovasz_weights(truth) + background) / 2
    assert foreground.grad.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_absent_classes_cost_nothing_in_lovasz_and_log_dice():
    probs = torch.tensor([0.7, 0.2, 0.1]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    noisy = torch.zeros(1, 2, 2, dtype=torch.long)
    assert lovasz_softmax(probs, noisy).item() == pytest.approx(0.3, abs=1e-6)
    assert log_dice_loss(probs, noisy).item() == pytest.approx(-math.log(2 * 0.7 / 1.7), abs=1e-6)


def test_log_dice_sums_over_the_classes():
    probs = torch.tensor([[0.8, 0.4], [0.2, 0.6]]).view(1, 2, 1, 2)
    noisy = torch.tensor([[[0, 1]]])
    # class 0: 2 * .8 / (1.2 + 1); class 1: 2 * .6 / (.8 + 1)
    expected = -math.log(1.6 / 2.2) - math.log(1.2 / 1.8)
    assert log_dice_loss(probs, noisy).item() == pytest.approx(expected, abs=1e-6)


def test_soft_targets_stay_soft():
    logits = torch.tensor([2.0, 0.0, -1.0]).view(1, 3, 1, 1)
    target = torch.tensor([0.2, 0.8, 0.0]).view(1, 3, 1, 1)
    log_probs = logits.flatten().log_softmax(0)
    expected = -(0.2 * log_probs[0] + 0.8 * log_probs[1]).item()
    assert soft_cross_entropy(logits, target, torch.ones(1, 1, 1)).item() == pytest.approx(expected, abs=1e-6)
    dice = soft_dice_loss(target, target, torch.ones(1, 1, 1))
    assert dice.item() == pytest.approx(0, abs=1e-6), "a soft label is its own best prediction"


def test_trusted_mean_survives_infinities_that_do_not_count():
    values = torch.tensor([[[1.0, math.inf, 3.0]]])
    assert trusted_mean(values, torch.tensor([[[1.0, 0.0, 3.0]]])).item() == 2.5


def test_trust_is_weight_where_labelled():
    noisy, weight = torch.tensor([[[0, 255, 2]]]), torch.tensor([[[0.5, 1.0, 1.0]]])
    assert trust(noisy, weight).tolist() == [[[0.5, 0.0, 1.0]]]
    assert pixel_cross_entropy(torch.zeros(1, 4, 1, 3), noisy)[0, 0].tolist() == pytest.approx(
        [math.log(4), 0, math.log(4)]
    )


def test_svls_kernel_keeps_half_in_the_middle():
    kernel = neighbour_kernel(sigma=1.0)
    side, corner = math.exp(-0.5), math.exp(-1.0)
    rim = 4 * (side + corner)
    assert kernel[1, 1].item() == 0.5 and kernel.sum().item() == pytest.approx(1, abs=1e-6)
    assert kernel[0, 1].item() == pytest.approx(side / rim / 2, abs=1e-6)
    assert kernel[0, 0].item() == pytest.approx(corner / rim / 2, abs=1e-6)


def test_svls_softens_outlines_only_and_leaves_ignored_neighbours_out():
    noisy = torch.zeros(1, 5, 6, dtype=torch.long)
    noisy[:, :, 3:] = 1
    counts = trust(noisy)
    soft = smoothed_labels(noisy, 2, counts, sigma=1.0)
    side, corner = math.exp(-0.5), math.exp(-1.0)
    across = (side + 2 * corner) / (4 * (side + corner)) / 2  # three of the eight neighbours
    assert soft[0, 1, 2, 2].item() == pytest.approx(across, abs=1e-6)
    assert soft[0, 1, 2, 1].item() == 0 and soft[0, 0, 2, 5].item() == 0
    assert torch.allclose(soft.sum(1), torch.ones(1, 5, 6), atol=1e-6)
    noisy[:, :, 3] = 255
    assert smoothed_labels(noisy, 2, trust(noisy), sigma=1.0)[0, 0, 2, 2].item() == pytest.approx(1, abs=1e-6)


def test_t_loss_is_the_student_likelihood():
    # scipy's multivariate t with location 0 and shape exp(-1) I, at the residuals themselves
    stats = pytest.importorskip("scipy.stats")
    residuals, freedom = [0.3, -0.2, 0.9, 0.1], math.e
    density = stats.multivariate_t(shape=[[math.exp(-1) * (i == j) for j in range(4)] for i in range(4)], df=freedom)
    expected = -density.logpdf(residuals) / 4
    squared = torch.tensor(sum(r**2 for r in residuals))
    found = t_loss(squared, torch.tensor(4.0), torch.tensor(1.0), log_precision=1.0)
    assert found.item() == pytest.approx(expected, abs=1e-5)


def test_t_loss_forgives_outliers_more_than_a_square():
    count, freedom = torch.tensor(100.0), torch.tensor(1.0)

    def loss(squared: float) -> float:
        return t_loss(torch.tensor(squared), count, freedom, log_precision=1.0).item()

    assert loss(40.0) - loss(20.0) < loss(20.0) - loss(0.0)
    assert t_loss(torch.tensor(0.0), torch.tensor(0.0), freedom, log_precision=1.0).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.0, 1.0), (0.3, 2.0)])
def test_sce_lies_between_cross_entropy_and_its_reverse(alpha, beta):
    probs, noisy = random_maps()
    batch = Batch(image=torch.zeros(2, 1, 6, 7), noisy=noisy, ids=("a", "b"))
    method = SCE(build_model("tiny", num_classes=3, channels=1), 3, alpha=alpha, beta=beta)
    # Reverse cross-entropy by hand: -log(1e-4) times what each pixel gives to other classes than its label.
    missed = 1 - probs.gather(1, noisy[:, None]).double().mean().item()
    expected = alpha * cross_entropy(probs, noisy) - beta * math.log(1e-4) * missed
    assert method.head_loss(probs.log(), batch).item() == pytest.approx(expected, rel=1e-5)


def test_t_loss_takes_each_class_against_the_rest():
    probs, noisy = random_maps()
    batch = Batch(image=torch.zeros(2, 1, 6, 7), noisy=noisy, ids=("a", "b"))
    method = TLoss(build_model("tiny", num_classes=3, channels=1), 3)
    total = 0.0
    for image in range(2):
        for c in range(3):
            errors = sum(
                (float(probs[image, c, row, column]) - float(noisy[image, row, column] == c)) ** 2
                for row in range(6)
                for column in range(7)
            )
            total += float(t_loss(torch.tensor(errors), torch.tensor(42.0), torch.tensor(1.0), log_precision=1.0))
    assert method.head_loss(probs.log(), batch).item() == pytest.approx(total / 6, rel=1e-5)


def test_t_loss_leaves_classes_out_that_an_image_does_not_show():
    probs, noisy = random_maps()
    noisy[1][noisy[1] == 2] = 0
    noisy[0, 0] = 255
    noisy[0][noisy[0] == 1] = 255
    batch = Batch(image=torch.zeros(2, 1, 6, 7), noisy=noisy, ids=("a", "b"))
    method = TLoss(build_model("tiny", num_classes=3, channels=1), 3)
    expected = []
    for image, shown in enumerate([(0, 2), (0, 1)]):
        judged = noisy[image] != 255
        losses = []
        for c in shown:
            error = ((probs[image, c] - (noisy[image] == c).float()) ** 2)[judged].sum()
            losses.append(float(t_loss(error, judged.sum().float(), torch.tensor(1.0), log_precision=1.0)))
        expected.append(sum(losses) / 2)
    assert method.head_loss(probs.log(), batch).item() == pytest.approx(sum(expected) / 2, rel=1e-5)
