"""The loss of JCAS is the sum that the paper writes, put together here by hand from the functions of `jcas.core`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from jcas.core import (
    Affinity,
    class_affinity_consistency,
    class_to_affinity,
    corrected_affinity_loss,
    corrected_cross_entropy,
    refine,
    volume,
)
from jcas.methods.jcas import JCAS
from jcas.models import build_model
from jcas.schema import Batch

CLASSES, SIZE = 3, (48, 40)


def batch() -> Batch:
    noisy = torch.randint(0, CLASSES, (2, *SIZE))
    noisy[:, :8] = 255
    return Batch(image=torch.rand(2, 1, *SIZE), noisy=noisy, ids=("a", "b"))


def method(preset: str, **more: float) -> JCAS:
    """After its warm-up, with matrices and a prior that no symmetry hides."""
    options = JCAS.model_options("tiny", preset=preset)
    model = build_model("tiny", num_classes=CLASSES, channels=1, **options)
    jcas = JCAS(model, CLASSES, preset=preset, warmup=1, **more)
    jcas.start_epoch(1)
    with torch.no_grad():
        if jcas.recipe.learned_matrices:
            jcas.class_matrix.weight.normal_()
            jcas.affinity_matrix.weight.normal_()
        jcas.counts.class_transition.copy_(torch.randn(CLASSES, CLASSES).softmax(1))
        jcas.counts.pair_transition.copy_(torch.randn(2, 2).softmax(1))
        jcas.counts.prior.copy_(torch.tensor([0.7, 0.2, 0.1]))
    return jcas.eval()  # the same statistics in both passes


def at(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    return interpolate(maps, size=size, mode="bilinear", align_corners=False)


def nearest(labels: Tensor, size: tuple[int, ...]) -> Tensor:
    return interpolate(labels[:, None].float(), size=size, mode="nearest-exact")[:, 0].long()


def pair_terms(features: Tensor, coarse: Tensor, data: Batch, pairs: Tensor, *, cosine: bool) -> tuple[Tensor, Tensor]:
    """What DAR adds to the logits on the affinity grid, and the corrected pair loss there."""
    affinity, grid = Affinity(features), tuple(features.shape[2:])
    on_grid = at(coarse, grid)
    change = refine(on_grid, affinity, cosine_reverse=cosine) - on_grid
    return change, corrected_affinity_loss(affinity, nearest(data.noisy, grid), pairs)


@pytest.mark.parametrize("learned", [False, True])
def test_corrected_joint_loss_is_the_papers_sum(learned: bool):
    jcas, data = method("corrected", learned_matrices=learned, neighbours=False, dar_of_flips=True), batch()
    output, transition, pairs = jcas.model(data.image), jcas.noise(), jcas.pair_noise()
    assert torch.equal(transition, jcas.class_matrix() if learned else jcas.counts.class_transition)

    def class_term(logits: Tensor) -> Tensor:
        return corrected_cross_entropy(at(logits, SIZE).softmax(1), data.noisy, transition)

    change, pair_loss = pair_terms(output.features, output.logits, data, pairs, cosine=True)
    expected = (
        class_term(output.logits + at(change, tuple(output.logits.shape[2:])))
        + class_term(output.logits)
        + 0.1 * class_term(output.auxiliary.logits)
        + pair_loss
    )
    if learned:
        expected = expected + 1e-3 * volume(transition)
        expected = expected + 0.01 * class_affinity_consistency(transition, pairs, jcas.counts.prior)
    assert jcas(data)["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(("options", "reached"), [({}, False), ({"separate_refinement": False}, True)])
def test_the_loss_of_refined_logits_teaches_affinities_and_only_if_asked_the_logits(options, reached):
    jcas, data = method("corrected", dar_of_flips=True, **options), batch()
    jcas(data)["class_loss"].backward()
    gradients = {
        name: max(float(p.grad.abs().max()) if p.grad is not None else 0.0 for p in head.parameters())
        for name, head in (("logits", jcas.model.classifier), ("features", jcas.model.features))
    }
    assert gradients["features"] > 0 and (gradients["logits"] > 0) == reached


@pytest.mark.parametrize("asked_for", [False, True])
def test_dar_takes_part_on_flipped_labels_only_if_asked_for(asked_for: bool):
    jcas, data = method("corrected", neighbours=False, dar_of_flips=asked_for), batch()
    jcas.counts.roughness.copy_(torch.tensor([0.2, 1.0]))  # salt and pepper
    assert jcas.counts.of_flipped_labels
    output, transition = jcas.model(data.image), jcas.noise()

    def class_term(logits: Tensor) -> Tensor:
        return corrected_cross_entropy(at(logits, SIZE).softmax(1), data.noisy, transition)

    change, pair_loss = pair_terms(output.features, output.logits, data, jcas.pair_noise(), cosine=True)
    refined = output.logits + at(change, tuple(output.logits.shape[2:])) * asked_for
    expected = class_term(output.logits) + 0.1 * class_term(output.auxiliary.logits)
    expected = expected + (class_term(refined) + pair_loss if asked_for else pair_loss / 2)
    assert jcas(data)["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(jcas.segment(data.image), at(refined, SIZE).softmax(1))
    assert float(change.detach().abs().max()) > 1e-3  # else this could not fail


def test_balanced_pairs_weigh_pixels_by_the_rarity_of_what_the_model_believes():
    jcas, data = method("corrected", balanced_pairs=True), batch()
    output = jcas.model(data.image)
    grid = tuple(output.features.shape[2:])
    believed, noisy = at(output.logits, grid).argmax(1), nearest(data.noisy, grid)
    even = class_to_affinity(jcas.counts.class_transition, torch.tensor([1.0, 1.0, 1.0]))
    torch.testing.assert_close(jcas.matrices()["affinity_transition"], even)  # what is shown is what is used
    weight = (1 / jcas.counts.prior)[believed]
    expected = corrected_affinity_loss(Affinity(output.features), noisy, even, weight=weight)
    assert believed.unique().numel() > 1  # else all weights are the same
    assert jcas(data)["affinity_loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    for options in ({"learned_matrices": True}, {"affinity": False}, {"consistency_weight": 0.0}):
        with pytest.raises(ValueError, match="balanced_pairs does nothing"):
            method("corrected", balanced_pairs=True, **options)


def test_dar_of_flips_without_dar_is_an_error():
    with pytest.raises(ValueError, match="dar_of_flips does nothing"):
        method("corrected", intra=False, inter=False, dar_of_flips=True)


def test_without_dar_the_class_loss_teaches_the_logits():
    jcas, data = method("corrected", intra=False, inter=False), batch()
    jcas(data)["class_loss"].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in jcas.model.classifier.parameters())
    with pytest.raises(ValueError, match="does nothing without"):
        method("corrected", intra=False, inter=False, separate_refinement=True)


def test_released_joint_loss_is_the_released_sum():
    jcas, data = method("released"), batch()
    output, transition, pairs = jcas.model(data.image), jcas.class_matrix(), jcas.affinity_matrix()

    def class_term(logits: Tensor) -> Tensor:
        return corrected_cross_entropy(at(logits, SIZE).softmax(1), data.noisy, transition)

    main, auxiliary = (
        (at(each.logits, grid), *pair_terms(at(each.features, grid), each.logits, data, pairs, cosine=False))
        for each, grid in ((output, (12, 10)), (output.auxiliary, (12, 8)))  # at 1/4; at 1/8, raised to H/4 x W/5
    )
    crossed = pairs[[1, 0]][:, [1, 0]]
    expected = (
        class_term(main[0] + main[1])
        + class_term(output.logits)
        + 0.1 * class_term(auxiliary[0] + auxiliary[1])
        + 0.1 * main[2]
        + 1.0 * auxiliary[2]
        + 0.5 * (volume(transition) + volume(pairs))
        + 0.01 * class_affinity_consistency(transition, crossed, jcas.counts.prior)
    )
    assert jcas(data)["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("preset", ["corrected", "released"])
def test_an_ignored_image_adds_nothing(preset: str):
    jcas, data = method(preset), batch()
    data.noisy[1] = 255
    alone = Batch(image=data.image[:1], noisy=data.noisy[:1], ids=("a",))
    both, first = jcas(data), jcas(alone)
    for name, value in first.items():
        assert both[name].item() == pytest.approx(value.item(), rel=1e-5), name
