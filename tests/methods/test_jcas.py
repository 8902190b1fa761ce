import math
from dataclasses import replace

import pytest
import torch

from jcas.config import make_config
from jcas.core import (
    class_to_affinity,
    corrected_cross_entropy,
    counted_transition,
    from_counts,
    neighbour_evidence,
    refined_by_appearance,
    repaired,
    symmetric,
    unchallenged,
)
from jcas.core.counting import CORE, confusion_counts, pair_counts
from jcas.inference import segment
from jcas.methods import JCAS
from jcas.methods.base import class_loss, resized_labels
from jcas.methods.noise_counts import NoiseCounts
from jcas.methods.recipe import PRESETS
from jcas.models import build_model
from jcas.schema import Batch


def build(encoder: str = "tiny", **options) -> JCAS:
    torch.manual_seed(0)
    model = build_model(encoder, num_classes=3, channels=3, **JCAS.model_options(encoder, **options))
    return JCAS(model, 3, **options)


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(
        image=torch.rand(2, 3, 64, 64, generator=generator),
        noisy=torch.randint(0, 3, (2, 64, 64), generator=generator),
        ids=("a", "b"),
    )


def test_warm_up_corrects_nothing_and_trains_no_pairs():
    method, drawn = build(warmup=2), build(warmup=2)
    drawn.start_epoch(0)
    assert set(drawn(drawn_batch())) == {"loss", "class_loss", "auxiliary_loss", "witness_loss"}
    for epoch in (0, 1):
        method.start_epoch(epoch)
        assert set(method(batch())) == {"loss", "class_loss", "auxiliary_loss"}  # colours say nothing about flips
        assert torch.equal(method.noise(), torch.eye(3)) and torch.equal(method.pair_noise(), torch.eye(2))
        method.end_epoch(epoch)
    method.start_epoch(2)
    assert set(method(batch())) == {"loss", "class_loss", "auxiliary_loss", "affinity_loss"}  # no DAR of flips
    assert torch.equal(method.noise(), method.counts.class_transition)


def after_counting(**options) -> tuple[JCAS, torch.Tensor, torch.Tensor]:
    """A method whose warm-up has just ended, and what it predicted and was told on the grid of its logits."""
    method = build(warmup=2, **options).eval()
    for epoch in (0, 1):
        method.start_epoch(epoch)
        method(batch())
        method.end_epoch(epoch)
    predicted = method.model(batch().image).logits.argmax(1)
    size = tuple(predicted.shape[1:])
    labels = torch.nn.functional.interpolate(batch().noisy[:, None].float(), size=size, mode="nearest-exact")
    return method, predicted, labels[:, 0].long()


def steps_of(sure: torch.Tensor) -> torch.Tensor:
    """Certainties, told apart by sixteenths of a nat."""
    return torch.tensor([math.floor(-16 * math.log(1 - value)) for value in sure.flatten().tolist()]).view_as(sure)


def test_matrices_are_counted_from_the_predictions_of_the_last_epoch():
    method, predicted, labels = after_counting()
    steps = steps_of(method.model(batch().image).logits.softmax(1).amax(1))
    shares, counts = torch.zeros(3), torch.zeros(3, 3)
    for index in range(3):
        own = list(zip(steps[predicted == index].tolist(), labels[predicted == index].tolist(), strict=True))
        shares[index] = len(own)
        wanted = CORE * len(own)  # the surest quarter, and of the step that it ends in a part of all labels
        for step in sorted({step for step, _ in own}, reverse=True):
            said = [noisy for other, noisy in own if other == step]
            taken = min(1.0, wanted / len(said))
            for noisy in said:
                counts[index, noisy] += taken
            wanted -= taken * len(said)
    assert torch.allclose(method.counts.prior, shares / shares.sum(), atol=1e-6)
    assert torch.allclose(method.counts.class_transition, counted_transition(counts).float(), atol=1e-6)
    implied = class_to_affinity(method.counts.class_transition, method.counts.prior)
    assert torch.allclose(method.counts.pair_transition, implied, atol=1e-6)


def test_without_consistency_pairs_are_counted_on_their_own():
    method, predicted, labels = after_counting(consistency_weight=0.0)
    steps = steps_of(method.model(batch().image).logits.softmax(1).amax(1))
    core = torch.zeros_like(predicted, dtype=torch.bool)
    for index in range(3):
        own = steps[predicted == index].sort(descending=True).values
        if len(own):
            core |= (predicted == index) & (steps >= own[math.ceil(CORE * len(own)) - 1])
    same, total = torch.zeros(2), torch.zeros(2)
    for image in range(2):
        kept = core[image]
        believed = predicted[image][kept][:, None] == predicted[image][kept][None]
        observed = labels[image][kept][:, None] == labels[image][kept][None]
        for kind in (0, 1):
            same[kind] += observed[believed == bool(kind)].sum()
            total[kind] += (believed == bool(kind)).sum()
    assert torch.allclose(method.counts.pair_transition[:, 1], same / total, atol=1e-5)


def test_the_noise_that_is_counted_does_not_depend_on_the_size_of_batches():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(6, 3, 16, 16, generator=generator).mul(6).softmax(1)
    probs[3:] = probs[3:].square() / probs[3:].square().sum(1, keepdim=True)  # images of which it is surer
    labels = torch.randint(3, (6, 16, 16), generator=generator)
    found = []
    for size in (1, 2, 6):
        counts = NoiseCounts(3, tied=True)
        for first in range(0, 6, size):
            counts.add(probs[first : first + size], labels[first : first + size], None)
        counts.believe_training()
        assert torch.equal(counts.everywhere, confusion_counts(probs.argmax(1), labels, 3).sum(0))
        assert torch.allclose(counts.cores.sum(1), CORE * counts.everywhere.sum(1))
        found.append(counts.class_transition)
    assert torch.allclose(found[0], found[2]) and torch.allclose(found[1], found[2])


def test_learned_pair_matrix_starts_where_the_theorem_puts_it():
    method, _, _ = after_counting(learned_matrices=True)
    implied = class_to_affinity(method.class_matrix(), method.counts.prior)
    assert torch.allclose(method.affinity_matrix(), implied, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({"affinity": False, "dar_of_flips": False}, {"affinity_loss", "coarse_loss", "consistency"}),
        ({"dar_of_flips": False}, {"coarse_loss"}),
        ({"consistency_weight": 0.0}, {"consistency"}),
        ({"correct_affinity": False}, {"consistency"}),
        ({"correct_class": False}, {"volume", "consistency"}),
        ({"learned_matrices": False}, {"volume", "consistency"}),
    ],
)
def test_switches_take_their_terms_out(options, gone):
    learned = {"warmup": 0, "learned_matrices": True, "dar_of_flips": True}
    assert not gone & set(build(**{**learned, **options})(batch()))
    assert gone <= set(build(**learned)(batch()))


@pytest.mark.parametrize("switch", ["intra", "inter"])
def test_reasoning_switches_change_the_prediction(switch):
    both, one = build(warmup=0).eval(), build(warmup=0, **{switch: False}).eval()
    one.load_state_dict(both.state_dict())
    images = batch().image
    assert not torch.allclose(both.predict(images), one.predict(images), atol=1e-4)
    neither = build(warmup=0, intra=False, inter=False).eval()
    neither.load_state_dict(both.state_dict())
    coarse = both.model(images).logits
    size = images.shape[2:]
    upsampled = torch.nn.functional.interpolate(coarse, size=size, mode="bilinear", align_corners=False)
    assert torch.allclose(neither.predict(images), upsampled.softmax(1), atol=1e-6)


def test_without_pairs_no_feature_head_is_built():
    assert build(affinity=False).model.features is None
    assert build().model.features is not None


def test_corrections_can_be_switched_off_separately():
    method = build(warmup=0, correct_class=False)
    assert torch.equal(method.noise(), torch.eye(3))
    method = build(warmup=0, correct_affinity=False)
    assert torch.equal(method.pair_noise(), torch.eye(2))


def test_released_preset_keeps_the_quirks_that_change_numbers():
    released, corrected = PRESETS["released"], PRESETS["corrected"]
    assert (released.main_affinity_weight, released.auxiliary_affinity_weight) == (0.1, 1.0)
    assert released.volume_weight == 0.5 and released.crossed_consistency and released.predict_both
    assert (released.training_stride, released.test_stride) == ((4, 5), (8, 10))
    assert corrected.free_affinity_matrix and not released.free_affinity_matrix
    method = build("resnet18", preset="released", warmup=0)
    parts = method(batch())
    assert "auxiliary_affinity_loss" in parts
    frozen = [name for name, p in method.model.encoder.named_parameters() if not p.requires_grad]
    assert any(name.startswith("layer1") for name in frozen) and any(name.startswith("conv1") for name in frozen)
    assert all(p.requires_grad for name, p in method.model.encoder.named_parameters() if "layer4.0.conv1" in name)
    assert len(method.model.classifier.branches) == 2 and len(build("resnet18").model.classifier.branches) == 4
    probs = method.eval().predict(batch().image)
    assert torch.allclose(probs.sum(1), torch.ones(2, 64, 64), atol=1e-5)


@pytest.mark.parametrize(
    ("encoder", "size", "in_training", "at_test"),
    [
        ("resnet18", (256, 320), (64, 64), (32, 32)),
        ("resnet18", (64, 80), (16, 16), (8, 8)),
        ("tiny", (96, 80), (24, 20), (24, 20)),  # a finer map stays as it is
    ],
)
def test_the_released_grid_is_a_part_of_the_image(encoder, size, in_training, at_test):
    method = build(encoder, preset="released", warmup=0).eval()
    images = torch.rand(1, 3, *size)
    output = method.model(images)
    assert method._affinity(output, images).spatial == in_training
    assert method._affinity(output, images, at_test=True).spatial == at_test
    assert method.predict(images).shape == (1, 3, *size)


@pytest.mark.parametrize("preset", ["corrected", "released"])
def test_a_grid_of_ones_own_is_taken_whatever_the_image(preset):
    method = build(preset=preset, warmup=0, training_grid=(12, 9), test_grid=(7, 5)).eval()
    images = batch().image
    output = method.model(images)
    assert method._affinity(output, images).spatial == (12, 9)
    assert method._affinity(output, images, at_test=True).spatial == (7, 5)
    assert torch.isfinite(method(batch())["loss"]) and method.predict(images).shape == (2, 3, 64, 64)


def test_released_prior_counts_the_noisy_labels():
    method = build("resnet18", preset="released", warmup=1)
    method.start_epoch(0)
    method(batch())
    method.end_epoch(0)
    labels = torch.bincount(batch().noisy.flatten(), minlength=3) / batch().noisy.numel()
    assert torch.allclose(method.counts.prior, labels.float(), atol=0.03)  # counted on the grid of the logits
    assert not torch.allclose(method.counts.prior, after_counting()[0].counts.prior, atol=0.03)


def test_unknown_preset_lists_the_presets():
    with pytest.raises(ValueError, match="unknown preset 'official', choose one of corrected, paper, released"):
        build(preset="official")
    with pytest.raises(ValueError, match="warmup must not be negative, got -1"):
        build(warmup=-1)


def drawn_batch() -> Batch:
    """A bright square, outlined four pixels too wide."""
    generator = torch.Generator().manual_seed(2)
    image, noisy = torch.full((2, 3, 64, 64), 0.2), torch.zeros(2, 64, 64, dtype=torch.long)
    image[:, :, 20:44, 20:44] = 0.8
    noisy[:, 16:48, 16:48] = 1
    return Batch(image=image + 0.02 * torch.rand(image.shape, generator=generator), noisy=noisy, ids=("a", "b"))


def after_warm_up(data: Batch, **options) -> JCAS:
    method = build(warmup=1, **options)
    method.start_epoch(0)
    method(data)
    assert not method.selectable
    method.end_epoch(0)
    method.start_epoch(1)
    assert method.selectable
    return method


def test_the_image_objects_to_drawn_labels_and_not_to_flipped_ones():
    assert after_warm_up(drawn_batch()).image_objects
    assert not after_warm_up(batch()).image_objects
    assert not after_warm_up(drawn_batch(), appearance=False).image_objects
    assert not after_warm_up(drawn_batch(), preset="paper").image_objects


def test_labels_that_the_image_contradicts_are_set_aside_and_never_replaced():
    data, undecided = drawn_batch(), torch.full((2, 3, 64, 64), 1 / 3)
    kept = unchallenged(data.noisy, repaired(data.image, data.noisy, undecided))
    assert torch.equal(kept[kept != 255], data.noisy[kept != 255])
    ring = data.noisy == 1
    ring[:, 20:44, 20:44] = False
    assert (kept[ring] == 255).float().mean() > 0.9
    assert (kept[:, 22:42, 22:42] == 1).all() and (kept[:, :12] == 0).all()


def test_the_loss_does_not_see_labels_that_were_set_aside():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.copy_(torch.tensor([True, True, False]))  # who does not know all classes is not heard
    for telling in (False, True):
        method.evidence.outlines.quiet.fill_(3 * telling)
        method.start_epoch(1)
        with torch.no_grad():
            logits = method.model(data.image).logits
            probs = torch.nn.functional.interpolate(logits, (64, 64), mode="bilinear").softmax(1)
            kept = unchallenged(data.noisy, repaired(data.image, data.noisy, probs))
            loss = method(data)["coarse_loss" if telling else "class_loss"]  # with pairs, before these refine
            carried = torch.einsum("bmhw,mn->bnhw", probs, method.counts.class_transition) if telling else probs
            expected = torch.nn.functional.nll_loss(carried.log(), kept, ignore_index=255)
        assert (kept == 255).any() and loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_labels_that_are_known_to_be_right_are_never_set_aside():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    undecided = torch.full((2, 3, 64, 64), 1 / 3)
    method.trusted = frozenset({data.ids[1]})
    kept = method._screened(data, undecided).noisy
    assert (kept[0] == 255).any() and torch.equal(kept[1], data.noisy[1])


def test_labels_of_a_background_colour_are_set_aside_where_nothing_else_tells():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(False)
    method.evidence.witness.distinct.copy_(torch.tensor([False, True, True]))
    method.evidence.witness.shares.copy_(torch.tensor([0.01, 0.98, 0.01]))  # any colour is rarer among so many pixels
    with torch.no_grad():
        probs = torch.nn.functional.interpolate(method.model(data.image).logits, (64, 64), mode="bilinear").softmax(1)
        locally = unchallenged(data.noisy, repaired(data.image, data.noisy, probs))
        kept = method.evidence.witness.unlike_background(data.image, locally)
        assert (locally == 1).any() and not (kept == 1).any()
        for failures, telling, labels in ((0, False, locally), (1, False, kept), (1, True, locally)):
            method.evidence.outlines.failures.fill_(failures)  # none: nobody has looked yet
            method.evidence.outlines.telling.fill_(telling)
            expected = torch.nn.functional.nll_loss(probs.log(), labels, ignore_index=255)
            assert method(data)["class_loss"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_labels_stand_where_a_witness_of_all_classes_names_them():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(True)
    with torch.no_grad():
        named = method.evidence.witness(data.image).argmax(1)
        probs = torch.nn.functional.interpolate(method.model(data.image).logits, (64, 64), mode="bilinear").softmax(1)
        loss = method(data)["class_loss"]
        kept = torch.where(named == data.noisy, data.noisy, 255)
        expected = torch.nn.functional.nll_loss(probs.log(), kept, ignore_index=255)
    assert (kept == 255).any() and (kept != 255).any()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_how_many_labels_of_each_class_are_set_aside_is_told():
    data, method = drawn_batch(), after_warm_up(drawn_batch())
    assert "labels set aside" not in method.findings()
    method.evidence.witness.known.fill_(True)
    with torch.no_grad():
        said = method.evidence.witness(data.image).argmax(1)
        method(data)
        method.eval().validation_loss(data, probabilities_of(data.noisy))  # images that nobody trains on do not count
    shares = [float((said[data.noisy == c] != c).float().mean()) for c in (0, 1)]
    assert 0 < max(shares) and method.findings()["labels set aside"] == f"{shares[0]:.0%} {shares[1]:.0%} 0%"
    method.start_epoch(2)
    assert "labels set aside" not in method.findings()


def test_the_witness_learns_colours_and_cannot_learn_places():
    """A third of the pixels of colour 1 is labelled 0, all of them on the left: the witness still calls them 1."""
    data = drawn_batch()
    data.image[:, 1:, 20:44, 20:44] = 0.2  # a red square
    labels = (data.image[:, 0] > data.image[:, 0].mean()).long()
    noisy = labels.clone()
    noisy[:, :, :28] = 0
    method = build(warmup=100)
    method.start_epoch(0)
    optimizer = torch.optim.Adam(method.evidence.witness.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        method(replace(data, noisy=noisy))["witness_loss"].backward()
        optimizer.step()
    method.end_epoch(0)
    assert method.evidence.witness.known.tolist() == [True, True, True]  # nobody labels the third
    assert (method.evidence.witness(data.image).argmax(1) == labels).float().mean() > 0.95


def test_the_witness_does_not_move_the_model():
    method = build(warmup=1)
    method.start_epoch(0)
    method(drawn_batch())["witness_loss"].backward()
    assert all(parameter.grad is None for parameter in method.model.parameters())
    heads = {id(parameter) for parameter in method.parameter_groups()["heads"]}
    assert all(id(parameter) in heads for parameter in method.evidence.witness.parameters())


def probabilities_of(labels: torch.Tensor) -> torch.Tensor:
    """Of a model that has learned these squares, doubtful over a few pixels on either side of an outline."""
    inside = torch.stack([torch.nn.functional.avg_pool2d(x[None].float(), 9, 1, 4)[0] for x in (labels == 1)])
    logit = 12 * (inside - 0.5)
    return torch.stack([-logit / 2, logit / 2, torch.full_like(logit, -9.0)], 1).softmax(1)


def test_validation_images_move_outlines_that_are_drawn_too_wide():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(False)
    truth, wide = torch.zeros_like(data.noisy), torch.zeros_like(data.noisy)
    truth[:, 20:44, 20:44], wide[:, 18:46, 18:46] = 1, 1
    data, probs = replace(data, noisy=wide), probabilities_of(wide)

    def jac(found: torch.Tensor) -> float:
        return float(((found == 1) & (truth == 1)).sum() / ((found == 1) | (truth == 1)).sum())

    assert jac(method.finish(data.image, probs).argmax(1)) < 0.8
    with torch.inference_mode():
        for _ in range(4):
            method.validation_loss(data, probs)
            method.end_validation()
    outlines = method.evidence.outlines
    assert outlines.offset[0] > outlines.offset[1] + 0.5 and outlines.telling
    assert jac(method.finish(data.image, probs).argmax(1)) > 0.9
    unmoved = after_warm_up(drawn_batch(), outline_bias=False).eval()
    unmoved.evidence.witness.known.fill_(False)
    unmoved.validation_loss(data, probs)
    unmoved.end_validation()
    assert torch.allclose(unmoved.finish(data.image, probs), refined_by_appearance(data.image, probs))


def test_outlines_are_not_counted_any_more_once_looks_have_failed():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(False)
    for failures, kept in ((1, 1), (2, 0)):
        method.evidence.outlines.failures.fill_(failures)
        method.evidence.outlines.forget()
        method.validation_loss(data, probabilities_of(data.noisy))
        assert len(method.evidence.outlines._seen) == kept


def test_what_the_image_says_at_the_end():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    probs = probabilities_of(data.noisy)
    method.evidence.witness.known.fill_(False)
    method.evidence.outlines.offset.copy_(torch.tensor([1.0, -1.0, 0.0]))
    unbiased = method.evidence.outlines.unbiased(probs)
    assert torch.equal(method.finish(data.image, probs), unbiased)
    method.evidence.witness.distinct.copy_(torch.tensor([False, True, False]))
    assert torch.equal(method.finish(data.image, probs), unbiased)  # nobody has looked yet
    method.evidence.outlines.failures.fill_(1)
    assert torch.equal(method.finish(data.image, probs), method.evidence.witness.weighed(data.image, unbiased))
    assert method.findings()["predictions"] == "refined by colour against background"
    method.evidence.outlines.telling.fill_(True)
    assert torch.equal(method.finish(data.image, probs), refined_by_appearance(data.image, unbiased))
    method.evidence.witness.known.fill_(True)
    assert torch.equal(method.finish(data.image, probs), probs)  # a witness has spoken in `consult`
    heard = probs * method.evidence.witness(data.image).softmax(1).sqrt()
    assert torch.allclose(method.consult(data.image, probs), heard / heard.sum(1, keepdim=True), atol=1e-5)


def test_a_witness_speaks_of_windows_as_large_as_those_it_learned_from():
    """The light falls off over a large image; among the colours of a window a colour says what it said in training."""
    method = after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(True)
    image = drawn_batch().image[:1]
    large = torch.cat([image, 0.4 * image], 3)  # (1, 3, 64, 128)
    config = make_config({"data": "", "method": "jcas", "crop": [64, 64]})
    with torch.no_grad():
        bright, dark = (method.consult(part, method.segment(part)) for part in (image, 0.4 * image))
        found = segment(method, large, config)
    assert torch.allclose(found[..., :32], bright[..., :32], atol=1e-5)
    assert torch.allclose(found[..., 112:], dark[..., 48:], atol=1e-5)  # of the last window alone


def test_without_windows_in_the_training_a_witness_speaks_of_whole_images(monkeypatch):
    monkeypatch.setattr("jcas.inference.LARGEST_WHOLE", 64)
    monkeypatch.setattr("jcas.inference.WINDOW", (64, 64))
    method = after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(True)
    large = torch.cat([drawn_batch().image[:1], 0.4 * drawn_batch().image[:1]], 3)
    with torch.no_grad():
        found = segment(method, large, make_config({"data": "", "method": "jcas"}))
        method.evidence.witness.known.fill_(False)
        network = segment(method, large, make_config({"data": "", "method": "jcas"}))
        heard = network * method.evidence.witness(large).softmax(1).sqrt()
    assert torch.allclose(found, heard / heard.sum(1, keepdim=True), atol=1e-5)


def test_labels_are_judged_as_they_are_stored_where_somebody_shows_them():
    """Lines of one pixel that were reduced to dots are drawn labels all the same."""
    lines = torch.zeros(4, 160, 160, dtype=torch.long)
    for number, line in enumerate(lines):
        line[torch.arange(150), (torch.arange(150) * (0.3 + 0.2 * number)).long()] = 1
        line[20:140, 130] = 1
    reduced = Batch(image=torch.rand(4, 3, 40, 40), noisy=lines[:, ::4, ::4], ids=("a", "b", "c", "d"))
    kinds = []
    for shown in ((), lines):
        method = build(warmup=1)
        method.survey(shown)
        method.start_epoch(0)
        method(reduced)
        kinds.append(method.counts.of_drawn_labels)
        assert method.counts.agreement.any()
    assert kinds == [False, True]


def test_validation_losses_of_different_speakers_are_not_compared():
    method = after_warm_up(drawn_batch()).eval()
    seen = set()
    for heard in (True, False):
        method.evidence.witness.known.fill_(heard)
        seen.add(method.yardstick)
    method.evidence.outlines.offset.fill_(1)
    seen.add(method.yardstick)
    method.evidence.outlines.groups.copy_(torch.tensor([0, 1, 1]))
    seen.add(method.yardstick)
    method.evidence.outlines.failures.fill_(1)
    for distinct in ([False, True, False], [False, True, True]):
        method.evidence.witness.distinct.copy_(torch.tensor(distinct))
        seen.add(method.yardstick)
    assert len(seen) == 6
    assert after_warm_up(batch()).yardstick == ""


def test_looks_refine_between_groups_where_they_do_not_tell_all_classes_apart():
    data, method = drawn_batch(), after_warm_up(drawn_batch(), witness=False).eval()
    probs, outlines = probabilities_of(data.noisy), method.evidence.outlines
    for groups, words in (
        ([0, 0, 0], "not refined"),
        ([0, 1, 1], "refined by appearance, not between"),
        ([0, 1, 2], "not"),
    ):
        outlines.groups.copy_(torch.tensor(groups))  # looks have not told them apart: `telling` stays False
        grouped = refined_by_appearance(data.image, probs, groups=outlines.groups)
        expected = grouped if groups == [0, 1, 1] else probs
        assert torch.equal(method.finish(data.image, probs), expected)
        assert method.findings()["predictions"].startswith(words)


def test_flipped_labels_of_validation_images_decide_whether_looks_refine():
    """Looks that narrow a square predicted too wide are worth it; those of an image that shows nothing are not."""
    method = after_warm_up(batch()).eval()
    method.evidence.witness.known.fill_(True)  # it has learned flipped labels and is not asked
    method.counts.class_transition.copy_(symmetric(3, 0.4))
    truth, wide = (torch.zeros(2, 64, 64, dtype=torch.long) for _ in range(2))
    truth[:, 20:44, 20:44], wide[:, 16:48, 16:48] = 1, 1
    noisy = torch.multinomial(symmetric(3, 0.4)[truth.flatten()].float(), 1, generator=torch.Generator().manual_seed(3))
    data = replace(drawn_batch(), noisy=noisy.view_as(truth))
    nothing = replace(data, image=torch.rand(data.image.shape, generator=torch.Generator().manual_seed(4)))
    assert torch.equal(method.finish(data.image, probabilities_of(wide)), probabilities_of(wide))  # nobody has judged
    for shown, believed, pays in ((data, wide, True), (nothing, truth, False), (data, wide, True)):
        probs = probabilities_of(believed)
        method.evidence.gain.zero_()
        gains = []
        for _ in range(3):
            method.start_epoch(1)
            method.validation_loss(shown, probs)
            method.end_validation()
            gains.append(float(method.evidence.gain))
        assert gains == pytest.approx([gains[0], 1.5 * gains[0], 1.75 * gains[0]])  # halfway with every look
        assert method.evidence.pays is pays and not method.evidence.outlines.offset.any()
        expected = refined_by_appearance(shown.image, probs) if pays else probs
        assert torch.equal(method.finish(shown.image, probs), expected)
        assert method.findings()["predictions"] == ("refined by appearance" if pays else "not refined")
    method.counts.class_transition.fill_(1 / 3)  # labels that tell nothing
    method.start_epoch(1)
    method.validation_loss(nothing, probabilities_of(truth))
    method.end_validation()
    assert method.evidence.pays, "they judge nobody, and what was known stands"
    method.start_epoch(0)
    assert torch.equal(method.finish(data.image, probs), probs)  # in the warm-up
    unrefined = after_warm_up(batch(), refinement=False).eval()
    unrefined.validation_loss(data, probabilities_of(wide))
    unrefined.end_validation()
    assert not unrefined.evidence.pays


def test_what_judges_refinement_leaves_out_ignored_pixels_and_hears_weights():
    method, data = after_warm_up(batch()).eval(), batch()
    noisy, weight = data.noisy.clone(), torch.ones(2, 64, 64)
    noisy[:, :10], weight[:, 10:20], weight[:, 20:30] = 255, 0.0, 2.0
    probs = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(5)).softmax(1)
    method.validation_loss(replace(data, noisy=noisy, weight=weight), probs)
    for counts, found in zip(method.evidence.compared, (probs, refined_by_appearance(data.image, probs)), strict=True):
        believed = found.argmax(1)
        once, twice = ((believed[:, rows], data.noisy[:, rows]) for rows in (slice(30, 64), slice(20, 30)))
        expected = confusion_counts(*once, 3).sum(0) + 2 * confusion_counts(*twice, 3).sum(0)
        assert torch.allclose(counts, expected)


def test_right_validation_labels_judge_refinement_as_they_are():
    """Flipped ones to train on, checked ones to validate with: T_C is not theirs."""
    method, data = after_warm_up(batch()).eval(), drawn_batch()
    method.counts.class_transition.copy_(symmetric(3, 0.4))
    truth = torch.zeros_like(data.noisy)
    truth[:, 20:44, 20:44] = 1
    for believed, pays in ((data.noisy, True), (truth, False)):
        image = data.image if pays else torch.rand(data.image.shape, generator=torch.Generator().manual_seed(4))
        probs = probabilities_of(believed)
        method.evidence.gain.zero_()
        method.start_epoch(1)
        method.validation_loss(replace(data, image=image, noisy=truth), probs)
        method.end_validation()
        right = [(found.argmax(1) == truth).float().mean() for found in (probs, refined_by_appearance(image, probs))]
        assert (right[1] > right[0]) == pays and method.evidence.pays is pays


def test_what_was_judged_is_kept_with_the_weights():
    method, other = after_warm_up(batch()), build(warmup=1)
    method.end_validation()
    assert not method.evidence.pays, "nothing was validated"
    method.evidence.gain.fill_(0.5)
    method.evidence.judged.fill_(2.0)
    other.load_state_dict(method.state_dict())
    assert other.evidence.pays and torch.equal(other.evidence.judged, method.evidence.judged)


def test_neighbours_speak_where_labels_were_flipped_and_a_matrix_corrects_them():
    assert after_warm_up(batch()).neighbours_speak
    warming = build(warmup=2)
    warming.start_epoch(0)
    warming(batch())
    assert not warming.neighbours_speak
    assert not after_warm_up(drawn_batch()).neighbours_speak
    plain = replace(batch(), noisy=torch.zeros(2, 64, 64, dtype=torch.long))  # no outline, so no kind of noise
    assert not after_warm_up(plain).neighbours_speak
    for options in ({"neighbours": False}, {"correct_class": False}, {"learned_matrices": True}, {"appearance": False}):
        assert not after_warm_up(batch(), **options).neighbours_speak


def flipped_batch(weight: torch.Tensor | None = None) -> Batch:
    """A square of class 1, half of whose labels and a tenth of all others are wrong."""
    generator = torch.Generator().manual_seed(3)
    noisy = torch.zeros(2, 63, 63, dtype=torch.long)  # an odd side
    noisy[:, 20:44, 20:44] = 1
    rate = torch.where(noisy == 1, 0.5, 0.1)
    noisy = torch.where(torch.rand(noisy.shape, generator=generator) < rate, (noisy + 1) % 3, noisy)
    return Batch(image=torch.rand(2, 3, 63, 63, generator=generator), noisy=noisy, weight=weight, ids=("a", "b"))


@pytest.mark.parametrize("affinity", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_neighbours_are_heard_by_every_class_loss(affinity, weighted):
    weight = torch.rand(2, 63, 63, generator=torch.Generator().manual_seed(4)) if weighted else None
    if weight is not None:
        weight[:, :20] = 0
    data = flipped_batch(weight)
    method = after_warm_up(data, affinity=affinity, dar_of_flips=affinity).eval()
    output = method.model(data.image)
    heads = {"class_loss": output.logits, "auxiliary_loss": output.auxiliary.logits}
    if affinity:
        heads["coarse_loss"] = output.logits
        heads["class_loss"] = method._refined(output.logits, method._affinity(output, data.image))
    labels = data.noisy if weight is None else torch.where(weight > 0, data.noisy, 255)
    probs = torch.nn.functional.interpolate(output.logits, (63, 63), mode="bilinear").softmax(1)
    said = neighbour_evidence(probs, labels, method.noise(), weight=weight)
    assert method.counts.reach == 1 and (said.amin(1) < 1).float().mean() > 0.5
    found = method(data)
    for name, logits in heads.items():
        at_labels = torch.nn.functional.interpolate(logits, (63, 63), mode="bilinear").softmax(1)
        expected = corrected_cross_entropy(at_labels, data.noisy, method.noise(), evidence=said, weight=weight)
        assert torch.allclose(found[name], expected, rtol=1e-6)
        unheard = corrected_cross_entropy(at_labels, data.noisy, method.noise(), weight=weight)
        assert not torch.isclose(expected, unheard, rtol=1e-5)
    without = after_warm_up(data, affinity=affinity, neighbours=False).eval()(data)
    assert not torch.isclose(without["auxiliary_loss"], found["auxiliary_loss"], rtol=1e-5)


@pytest.mark.parametrize("encoder", ["tiny", "unet", "resnet18"])  # logits at 1/2, 1/1 and 1/8 of the side
def test_flipped_labels_are_counted_with_the_word_of_neighbours_on_half_the_grid(encoder):
    data = flipped_batch()
    method = after_warm_up(data, encoder=encoder).eval()
    before = method.counts.class_transition.clone()
    method(data)
    probs = torch.nn.functional.interpolate(method.model(data.image).logits, (32, 32), mode="bilinear").softmax(1)
    labels = resized_labels(data.noisy, (32, 32))
    believed = probs * neighbour_evidence(probs, labels, before)
    expected = NoiseCounts(3, tied=True)
    expected.add(believed / believed.sum(1, keepdim=True), labels, None)
    assert torch.equal(method.counts.everywhere, expected.everywhere)
    assert torch.equal(method.counts.cores, expected.cores)
    method.end_epoch(1)
    assert torch.allclose(method.noise(), counted_transition(expected.cores).float())


@pytest.mark.parametrize("weighted", [True, False])
def test_the_warm_up_on_flipped_labels_is_robust_from_the_first_batch_on(weighted):
    weight = torch.rand(2, 63, 63, generator=torch.Generator().manual_seed(4)) if weighted else None
    data = flipped_batch(weight)
    robust, plain = build(warmup=2).eval(), build(warmup=2, robust_warmup=False).eval()
    output = robust.model(data.image)
    for epoch in (0, 1):
        robust.start_epoch(epoch)
        plain.start_epoch(epoch)
        found, without = robust(data), plain(data)
        assert robust.warms_up_robustly and not plain.warms_up_robustly
        for name, logits in (("class_loss", output.logits), ("auxiliary_loss", output.auxiliary.logits)):
            probs = torch.nn.functional.interpolate(logits, (63, 63), mode="bilinear").softmax(1)
            given = probs.gather(1, data.noisy[:, None])[:, 0]
            trust = torch.ones_like(given) if weight is None else weight
            assert torch.allclose(found[name], ((1 - given**0.7) / 0.7 * trust).sum() / trust.sum(), rtol=1e-5)
            assert torch.allclose(without[name], (-given.log() * trust).sum() / trust.sum(), rtol=1e-5)
        assert torch.equal(robust.noise(), torch.eye(3))
    robust.start_epoch(2)
    assert not robust.warms_up_robustly


def test_the_warm_up_on_other_labels_is_the_baseline():
    for data, options in (
        (drawn_batch(), {}),
        (replace(batch(), noisy=torch.zeros(2, 64, 64, dtype=torch.long)), {}),  # no outline, so no kind of noise
        (batch(), {"appearance": False}),
        (batch(), {"preset": "paper"}),
    ):
        method = build(warmup=2, **options).eval()
        method.start_epoch(0)
        found = method(data)
        assert not method.warms_up_robustly
        expected = class_loss(method.model(data.image).logits, data, torch.eye(3))
        assert torch.allclose(found["class_loss"], expected)


def test_the_kind_of_labels_is_known_when_a_run_goes_on_in_its_warm_up():
    method, other = build(warmup=3), build(warmup=3)
    method.start_epoch(0)
    method(flipped_batch())
    other.load_state_dict(method.state_dict())
    other.start_epoch(1)
    assert other.warms_up_robustly
    counted = other.counts.roughness.clone()
    other(flipped_batch())
    assert torch.equal(other.counts.roughness, counted)  # the first epoch has seen all labels
    late = build(warmup=3)
    late.start_epoch(1)  # a loop of one's own need not begin at 0
    late(flipped_batch())
    assert torch.equal(late.counts.roughness, counted) and late.warms_up_robustly


def test_without_a_warm_up_neighbours_speak_from_the_first_batch_on():
    method = build(warmup=0).eval()
    method.start_epoch(0)
    method(flipped_batch())
    assert method.neighbours_speak and not method.warms_up_robustly


def test_neighbours_of_enlarged_masks_are_taken_from_farther_away():
    data = flipped_batch()
    twice = data.noisy.repeat_interleave(2, 1).repeat_interleave(2, 2)
    method = after_warm_up(replace(data, noisy=twice, image=torch.rand(2, 3, 126, 126)))
    assert method.counts.reach == 2 and method.findings()["neighbours"] == "heard, 2 pixels apart"
    other = build(warmup=1)
    other.load_state_dict(method.state_dict())
    assert other.counts.reach == 2 and other.counts.of_flipped_labels


def test_drawn_labels_are_counted_everywhere_not_in_cores():
    method = after_warm_up(drawn_batch())
    method(drawn_batch())
    method.end_epoch(1)
    assert torch.allclose(method.counts.class_transition, counted_transition(method.counts.everywhere).float())
    assert not torch.allclose(method.counts.class_transition, counted_transition(method.counts.cores).float())


def test_pairs_of_drawn_labels_are_left_out_unless_these_go_wrong_by_chance():
    method = after_warm_up(drawn_batch())
    assert not method.uses_pairs and "affinity_loss" not in method(drawn_batch())
    assert torch.equal(method.pair_noise(), torch.eye(2))
    assert after_warm_up(batch()).uses_pairs
    readers = without_a_habit(drawn_batch())
    assert readers.uses_pairs and "affinity_loss" in readers(drawn_batch())
    assert not without_a_habit(drawn_batch(), affinity=False).uses_pairs
    assert without_a_habit(drawn_batch(), correct_class=False).uses_pairs


def test_pairs_of_drawn_labels_do_not_begin_when_too_little_of_the_run_is_left():
    assert JCAS.schedule(10) == {"warmup": 3, "latest_pairs": 7}
    method = without_a_habit(drawn_batch(), latest_pairs=1)  # begun in epoch 1
    method.start_epoch(2)
    assert method.uses_pairs, "what has begun goes on"
    method.evidence.outlines.quiet.zero_()
    method.start_epoch(3)
    method.evidence.outlines.quiet.fill_(3)
    method.start_epoch(4)
    assert not method.uses_pairs and method.corrects_class, "nor do they begin again; T_C needs no features"


def test_no_prediction_asks_pairs_that_were_not_trained():
    data, method = drawn_batch(), after_warm_up(drawn_batch()).eval()
    method.evidence.witness.known.fill_(False)
    with torch.no_grad():
        before = method.segment(data.image)
        method.evidence.outlines.telling.fill_(True)
        method.evidence.outlines.quiet.fill_(3)  # the third look in a row that finds nothing, at the end of the epoch
        assert torch.equal(method.segment(data.image), before)
        method.start_epoch(2)
        assert method.uses_pairs and not torch.equal(method.segment(data.image), before)


def test_pairs_of_drawn_labels_are_counted_everywhere():
    data, method = drawn_batch(), without_a_habit(drawn_batch(), consistency_weight=0.0).eval()
    with torch.no_grad():
        believed = method.model(data.image).logits.argmax(1)
        method(data)
    confusion = confusion_counts(believed, resized_labels(data.noisy, believed.shape[1:]), 3)
    assert torch.allclose(method.counts.pairs_everywhere, pair_counts(confusion))


def without_a_habit(data: Batch, **options) -> JCAS:
    """After the warm-up on drawn labels, with images that tell classes apart and object to no outline."""
    method = after_warm_up(data, **options)
    method.evidence.outlines.telling.fill_(True)
    method.evidence.outlines.quiet.fill_(3)
    if method.evidence.witness is not None:
        method.evidence.witness.known.fill_(False)
    method.start_epoch(1)
    return method


def test_the_matrix_corrects_drawn_labels_unless_they_have_a_habit():
    method = without_a_habit(drawn_batch())
    assert method.corrects_class and torch.equal(method.noise(), method.counts.class_transition)
    assert not torch.equal(method.noise(), torch.eye(3))
    assert method.findings()["noise"] == "no habit seen, T_C corrects it"
    assert torch.equal(method.pair_noise(), method.counts.pair_transition) and method.pair_noise()[0, 1] > 0
    method.evidence.witness.known.fill_(True)  # colours speak
    assert not method.corrects_class and torch.equal(method.noise(), torch.eye(3))
    method.evidence.witness.known.fill_(False)
    method.evidence.outlines.offset.copy_(torch.tensor([0.5, -0.5, 0.0]))  # all are drawn too wide
    assert not method.corrects_class and torch.equal(method.noise(), torch.eye(3))
    assert "noise" not in method.findings()
    assert torch.equal(method.matrices()["class_transition"], method.counts.class_transition)  # reported all the same
    method.evidence.outlines.offset.zero_()
    method.evidence.outlines.quiet.fill_(2)  # too early to say
    assert not method.corrects_class and torch.equal(method.noise(), torch.eye(3))
    method = without_a_habit(drawn_batch())
    method.counts.shapes.copy_(torch.tensor([10, 4]))  # ellipses are a habit, wherever their outlines lie
    assert not method.corrects_class and method.findings()["labels"].startswith("drawn as ellipses (")
    method.start_epoch(int(method.epoch))
    assert not method.uses_pairs
    assert not without_a_habit(drawn_batch(), correct_class=False).corrects_class
    assert without_a_habit(drawn_batch(), witness=False).corrects_class
    assert not after_warm_up(drawn_batch(), witness=False).corrects_class  # no validation image has come by


def test_a_witness_that_denies_objects_is_not_asked():
    evidence = after_warm_up(drawn_batch()).evidence
    evidence.witness.known.fill_(True)
    evidence.witness.distinct.fill_(True)
    evidence.witness.denied.fill_(0.2)
    assert evidence.speaker == "witness" and "colours" not in evidence.findings(drawn=True)
    evidence.witness.denied.fill_(0.3)
    assert evidence.speaker == "looks"
    assert evidence.findings(drawn=True)["colours"].startswith("not heard, 30% of the cores of objects")
    evidence.outlines.failures.fill_(1)  # where looks fail, what is the background's colour may still be said
    assert evidence.speaker == "background"


def test_drawn_labels_are_validated_without_the_matrix_which_comes_and_goes():
    data, method = drawn_batch(), without_a_habit(drawn_batch()).eval()
    probs = probabilities_of(data.noisy)
    loss = method.validation_loss(data, probs)
    method.evidence.outlines.offset.copy_(torch.tensor([1e-6, 0.0, 0.0]))
    assert loss.item() == pytest.approx(method.validation_loss(data, probs).item(), rel=1e-4)


def test_learned_matrices_stand_still_while_they_correct_nothing():
    method = without_a_habit(drawn_batch(), learned_matrices=True)
    assert "volume" in method(drawn_batch())
    method.evidence.outlines.offset.copy_(torch.tensor([0.5, -0.5, 0.0]))
    parts = method(drawn_batch())
    parts["loss"].backward()
    assert "volume" not in parts and method.class_matrix.weight.grad is None


def test_the_matrix_of_drawn_labels_is_counted_on_validation_images():
    """Those of the training are learned by heart: a model that repeats them would find no noise."""
    data, method = drawn_batch(), without_a_habit(drawn_batch()).eval()
    seen = method.counts.class_transition.clone()
    weight = torch.rand(data.noisy.shape, generator=torch.Generator().manual_seed(3))
    held = replace(data, noisy=data.noisy.roll(6, 1), weight=weight)
    probs = probabilities_of(data.noisy)
    confusion = confusion_counts(probs.argmax(1), held.noisy, 3, weight=weight)
    with torch.no_grad():
        method(data)
        method.end_epoch(1)
        method.validation_loss(held, probs)
        method.end_validation()
    expected = counted_transition(confusion.sum(0)).float()
    assert torch.allclose(method.counts.class_transition, expected) and not torch.allclose(expected, seen)
    assert torch.allclose(method.counts.prior, (confusion.sum((0, 2)) / confusion.sum()).float())
    assert torch.allclose(method.counts.pair_transition, class_to_affinity(expected, method.counts.prior), atol=1e-6)
    method.start_epoch(2)
    with torch.no_grad():
        method(data)
    method.end_epoch(2)  # the training has no say any more
    assert torch.allclose(method.counts.class_transition, expected)
    apart = without_a_habit(drawn_batch(), consistency_weight=0.0).eval()
    apart.validation_loss(held, probs)
    apart.end_validation()
    assert torch.allclose(apart.counts.pair_transition, from_counts(pair_counts(confusion)).float())
    flipped = after_warm_up(batch()).eval()
    counted = flipped.counts.class_transition.clone()
    flipped.validation_loss(batch(), flipped.segment(batch().image))
    flipped.end_validation()
    assert torch.equal(flipped.counts.class_transition, counted)


def test_roughness_survives_a_saved_state():
    method, other = after_warm_up(drawn_batch()), build(warmup=1)
    other.load_state_dict(method.state_dict())
    assert other.image_objects


def test_what_it_has_decided_is_told():
    assert build(warmup=1).findings() == {}
    for data, told in ((batch(), {"warm-up": "robust"}), (drawn_batch(), {})):
        warming = build(warmup=2)
        warming.start_epoch(0)
        warming(data)
        found = warming.findings()
        assert found.pop("labels").split()[0] == ("flipped" if told else "drawn") and found == told
    drawn = after_warm_up(drawn_batch())
    drawn.evidence.witness.known.fill_(True)
    assert drawn.findings() == {"labels": "drawn (roughness 0.000)", "predictions": "refined by colour"}
    drawn.evidence.witness.known.fill_(False)
    assert drawn.findings()["predictions"] == "not refined"
    drawn.evidence.outlines.telling.fill_(True)
    drawn.evidence.outlines.offset.copy_(torch.tensor([1.0, -0.5, 0.0]))
    assert drawn.findings()["predictions"] == "refined by appearance"
    assert drawn.findings()["outlines"] == "moved by +1.00 -0.50 +0.00"
    flipped = after_warm_up(batch()).findings()
    assert flipped["labels"].startswith("flipped (roughness 0.") and flipped["neighbours"] == "heard"
    unmoved = after_warm_up(drawn_batch(), outline_bias=False)
    unmoved.evidence.outlines.offset.fill_(1.0)
    assert "outlines" not in unmoved.findings()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"witness": True, "appearance": False}, "witness does nothing without appearance"),
        ({"outline_bias": True, "appearance": False}, "outline_bias does nothing without appearance"),
        ({"neighbours": True, "appearance": False}, "neighbours does nothing without appearance"),
        ({"robust_warmup": True, "appearance": False}, "robust_warmup does nothing without appearance"),
        ({"robust_warmup": True, "warmup": 0}, "robust_warmup does nothing without a warmup"),
        ({"neighbours": True, "correct_class": False}, "neighbours does nothing without a counted T_C"),
        ({"neighbours": True, "learned_matrices": True}, "neighbours does nothing without a counted T_C"),
        ({"training_grid": (0, 4)}, "training_grid must have at least one row and one column"),
        ({"volume_weight": 0.1}, "volume_weight does nothing without learned_matrices"),
    ],
)
def test_switches_that_would_do_nothing_are_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        build(**options)
