"""What every registered method promises; a new one is tested by being in METHODS."""

import copy
import math
import re

import pytest
import torch

from jcas.methods import check_options, method_class, method_names, method_options, option_defaults
from jcas.methods.card import card_paragraphs
from jcas.models import build_model
from jcas.schema import Batch

CLASSES = 3
KINDS = ("drawn", "drawn without a habit", "flipped")
pytestmark = pytest.mark.parametrize("name", method_names())
of_every_kind = pytest.mark.parametrize("kind", KINDS)


def build(name: str, **options):
    torch.manual_seed(7)
    cls = method_class(name)
    options = method_options(name, options, epochs=5)  # a warm-up of one or two epochs
    encoder = f"{cls.network}:tiny" if cls.network else "tiny"
    model = build_model(encoder, num_classes=CLASSES, channels=1, **cls.model_options(encoder, **options))
    return cls(model, CLASSES, **options)


def two_images(*, ignore: bool = False, labels: torch.Tensor | None = None) -> Batch:
    """Bright squares and dark stripes on grey, with their labels."""
    generator = torch.Generator().manual_seed(3)
    noisy = torch.zeros(2, 32, 40, dtype=torch.long)
    noisy[0, 6:18, 5:20], noisy[1, 20:30, 8:36], noisy[0, 24:28, 2:38] = 1, 1, 2
    image = 0.5 + 0.35 * (noisy == 1).float() - 0.35 * (noisy == 2).float()
    image = image + 0.05 * torch.randn(noisy.shape, generator=generator)
    if labels is not None:
        noisy = labels
    if ignore:
        noisy = noisy.clone()
        noisy[:, :8] = 255
    return Batch(image=image[:, None].clamp(0, 1), noisy=noisy, ids=("a", "b"))


def stages(method, kind: str):
    """Epochs that stand for the stages of a method: before, at the end of and after any warm-up.

    Each is lived through as in a run, with labels that were drawn or flipped, so that what a method counts, learns and
    decides about them is in force in the next.
    """
    labels = torch.randint(0, CLASSES, (2, 32, 40), generator=torch.Generator().manual_seed(4))
    lesson = two_images(labels=labels if kind == "flipped" else None)
    for epoch in (0, 1, 5):
        method.start_epoch(epoch)
        yield epoch
        with torch.no_grad():
            method(lesson)
            method.end_epoch(epoch)
            method.validation_loss(lesson, method.segment(lesson.image))
            method.end_validation()
        if kind == "drawn without a habit" and getattr(method, "evidence", None) is not None:
            method.evidence.outlines.quiet.fill_(3)  # two images show too little of an outline to find it out
            method.evidence.outlines.offset.zero_()
            if method.evidence.witness is not None:
                method.evidence.witness.known.fill_(False)


def test_stages_reach_what_jcas_decides(name):
    for kind in KINDS if name == "jcas" else ():
        method = build(name)
        list(stages(method, kind))
        assert method.image_objects == (kind != "flipped")
        assert method.uses_pairs == method.corrects_class == (kind != "drawn")
        assert not torch.equal(method.counts.class_transition, torch.eye(CLASSES))


def seeded(method, batch: Batch) -> dict[str, torch.Tensor]:
    """The losses of a batch, whatever was drawn before."""
    torch.manual_seed(11)
    return method(batch)


@of_every_kind
def test_loss_and_gradients_are_finite_in_every_stage(name, kind):
    method = build(name)
    for _ in stages(method, kind):
        method.zero_grad()
        parts = method(two_images(ignore=True))
        assert parts["loss"].ndim == 0 and all(math.isfinite(value.item()) for value in parts.values())
        parts["loss"].backward()
        gradients = {key: p.grad for key, p in method.named_parameters() if p.grad is not None}
        assert all(g.isfinite().all() for g in gradients.values())
        assert any(key.startswith("model.encoder") and g.abs().sum() > 0 for key, g in gradients.items())


@of_every_kind
def test_probabilities_sum_to_one_at_the_size_of_the_images(name, kind):
    method = build(name).eval()
    for _ in stages(method, kind):
        probs = method.predict(torch.rand(2, 1, 37, 45))
        assert probs.shape == (2, CLASSES, 37, 45)
        assert torch.allclose(probs.sum(1), torch.ones(2, 37, 45), atol=1e-5) and (probs >= 0).all()
        assert torch.allclose(method.noise().sum(1), torch.ones(CLASSES), atol=1e-5)


def test_loss_falls_and_labels_are_learnt_on_two_images(name):
    method, batch = build(name), two_images()
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3)
    before = method.eval().validation_loss(batch, method.segment(batch.image)).item()
    for epoch in range(12):
        method.train().start_epoch(epoch)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = method(batch)["loss"]
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        # Only within an epoch: from one to the next a loss may become another one, or its weights grow.
        fall = (losses[0] - losses[-1]) / abs(losses[0])
        assert epoch > 2 or fall > (0 if epoch else 0.2), f"training loss of epoch {epoch}: {losses}"
        method.end_epoch(epoch)
        after = method.eval().validation_loss(batch, method.segment(batch.image)).item()
        method.end_validation()
        right = (method.predict(batch.image).argmax(1) == batch.noisy).float().mean()
        if epoch > 1 and after < 0.6 * before and right > 0.9:  # some steps in every stage, then no more than needed
            return
    raise AssertionError(f"validation loss {before:.3f} -> {after:.3f}, {right:.1%} of the labels learnt")


@of_every_kind
def test_saved_and_loaded_it_takes_the_identical_next_step(name, kind):
    method = build(name)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1, momentum=0.9)

    list(stages(method, kind))

    def step(subject, its_optimizer):
        subject.start_epoch(6)
        its_optimizer.zero_grad()
        torch.manual_seed(11)
        subject(two_images())["loss"].backward()
        its_optimizer.step()

    step(method, optimizer)
    other = build(name)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    its_optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    its_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(method, optimizer)
    step(other, its_optimizer)
    for key, value in method.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key


def test_same_seed_same_weights(name):
    """From the start and after two epochs of a step each."""
    first, second = build(name), build(name)
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())
    for method in (first, second):
        optimizer = torch.optim.AdamW(method.parameters(), lr=1e-2)
        for epoch in range(2):
            method.start_epoch(epoch)
            optimizer.zero_grad()
            seeded(method, two_images())["loss"].backward()
            optimizer.step()
            method.end_epoch(epoch)
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())
    fresh = build(name).state_dict()
    assert any(not torch.equal(value, fresh[key]) for key, value in first.state_dict().items())


@pytest.mark.parametrize("label", [0, 2])
def test_one_image_and_one_class_are_enough(name, label):
    trains_on(name, Batch(image=torch.rand(1, 1, 32, 32), noisy=torch.full((1, 32, 32), label), ids=("only",)))


def test_one_image_of_several_classes_is_enough(name):
    both = two_images()
    trains_on(name, Batch(image=both.image[:1], noisy=both.noisy[:1], ids=("only",)))


def trains_on(name: str, batch: Batch) -> None:
    method = build(name)
    for epoch in (0, 1, 5):
        method.start_epoch(epoch)
        loss = method(batch)["loss"]
        loss.backward()
        assert math.isfinite(loss.item())
        method.end_epoch(epoch)
        method.validation_loss(batch, method.segment(batch.image))
        method.end_validation()
    assert all(p.grad.isfinite().all() for p in method.parameters() if p.grad is not None)
    assert all(value.isfinite().all() for value in method.matrices().values())


@of_every_kind
def test_a_batch_without_any_label_costs_no_class_loss(name, kind):
    method = build(name)
    batch = Batch(image=torch.rand(2, 1, 32, 32), noisy=torch.full((2, 32, 32), 255), ids=("a", "b"))
    for _ in stages(method, kind):
        parts = method(batch)
        assert parts["class_loss"].item() == 0 and math.isfinite(parts["loss"].item())
        parts["loss"].backward()


@of_every_kind
def test_zero_weight_equals_ignored(name, kind):
    method, plain = build(name), two_images()
    weight = torch.ones(plain.noisy.shape)
    weight[:, :8] = 0
    weighted = Batch(image=plain.image, noisy=plain.noisy, ids=plain.ids, weight=weight)
    for _ in stages(method, kind):
        ignored = seeded(method, two_images(ignore=True))["class_loss"]
        assert torch.allclose(seeded(method, weighted)["class_loss"], ignored, atol=1e-6)


@of_every_kind
def test_labels_of_pixels_that_do_not_count_do_not_matter(name, kind):
    method, plain = build(name), two_images()
    weight = torch.ones(plain.noisy.shape)
    weight[:, :8] = 0
    other = plain.noisy.clone()
    other[:, :8] = 2 - other[:, :8]
    ignored, swapped = (
        Batch(image=plain.image, noisy=noisy, ids=plain.ids, weight=weight)
        for noisy in (two_images(ignore=True).noisy, other)
    )
    for _ in stages(method, kind):
        twin = copy.deepcopy(method)
        for subject, batch in ((method, ignored), (twin, swapped)):
            subject.zero_grad()
            seeded(subject, batch)["loss"].backward()
        for (key, own), other in zip(method.named_parameters(), twin.parameters(), strict=True):
            assert (own.grad is None) == (other.grad is None), key
            assert own.grad is None or torch.allclose(own.grad, other.grad, atol=1e-6), key
        for (key, own), other in zip(method.named_buffers(), twin.buffers(), strict=True):  # what it counts
            assert torch.allclose(own.double(), other.double(), atol=1e-6), key
        method.zero_grad()


def test_parameter_groups_hold_each_trainable_parameter_once(name):
    method = build(name)
    groups = method.parameter_groups()
    assert set(groups) == {"encoder", "heads", "matrices"}
    listed = [id(p) for group in groups.values() for p in group]
    assert sorted(listed) == sorted(id(p) for p in method.parameters() if p.requires_grad)


def test_the_card_is_complete(name):
    cls = method_class(name)
    card = cls.__doc__ or ""
    assert cls.paper and len(card) > 150 and "Learns:" in card
    assert "math::" in card or "=" in card or "`" in card, "no formula, and no function that has one"
    assert "Differs from" in card
    unnamed = [option for option in option_defaults(name) if not re.search(rf"``{option}\b", card)]
    assert not unnamed, "options that the card does not explain"
    shown = "\n".join(card_paragraphs(cls))
    assert not re.search(r"\\|[{}]|``|:\w+:|::", shown), "markup that a terminal does not understand"


def test_unknown_options_name_the_nearest(name):
    with pytest.raises(ValueError, match=f"method '{name}' has no option 'volumeweight'"):
        check_options(name, {"volumeweight": 1})
    with pytest.raises(ValueError, match=f"did you mean '{name}'"):
        method_class(name + "x")
