"""What every registered method promises; a new one is tested by being in METHODS."""

import copy
import math

import pytest
import torch

from jcas.methods import check_options, method_class, method_names, method_options
from jcas.models import build_model
from jcas.schema import Batch

CLASSES = 3
pytestmark = pytest.mark.parametrize("name", method_names())


def build(name: str, **options):
    torch.manual_seed(7)
    cls = method_class(name)
    options = method_options(name, options, epochs=5)  # a warm-up of one epoch
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


def stages(method) -> list[int]:
    """Epochs that stand for the stages of a method: the first, and one after any warm-up."""
    return [0, 5]


def seeded(method, batch: Batch) -> dict[str, torch.Tensor]:
    """The losses of a batch, whatever was drawn before."""
    torch.manual_seed(11)
    return method(batch)


def test_loss_and_gradients_are_finite_in_every_stage(name):
    method = build(name)
    for epoch in stages(method):
        method.start_epoch(epoch)
        method.zero_grad()
        parts = method(two_images(ignore=True))
        assert parts["loss"].ndim == 0 and all(math.isfinite(value.item()) for value in parts.values())
        parts["loss"].backward()
        gradients = {key: p.grad for key, p in method.named_parameters() if p.grad is not None}
        assert all(g.isfinite().all() for g in gradients.values())
        assert any(key.startswith("model.encoder") and g.abs().sum() > 0 for key, g in gradients.items())


def test_probabilities_sum_to_one_at_the_size_of_the_images(name):
    method = build(name).eval()
    for epoch in stages(method):
        method.start_epoch(epoch)
        probs = method.predict(torch.rand(2, 1, 37, 45))
        assert probs.shape == (2, CLASSES, 37, 45)
        assert torch.allclose(probs.sum(1), torch.ones(2, 37, 45), atol=1e-5) and (probs >= 0).all()
        assert torch.allclose(method.noise().sum(1), torch.ones(CLASSES), atol=1e-5)


def test_loss_falls_and_labels_are_learnt_on_two_images(name):
    method, batch = build(name), two_images()
    optimizer = torch.optim.AdamW(method.parameters(), lr=3e-3)
    before = method.eval().validation_loss(batch, method.segment(batch.image)).item()
    for step in range(80):
        method.train().start_epoch(0 if step < 10 else 5)
        optimizer.zero_grad()
        method(batch)["loss"].backward()
        optimizer.step()
        if step % 10 == 9 and step > 10:  # some steps in every stage, then no more than needed
            after = method.eval().validation_loss(batch, method.segment(batch.image)).item()
            right = (method.predict(batch.image).argmax(1) == batch.noisy).float().mean()
            if after < 0.6 * before and right > 0.9:
                return
    raise AssertionError(f"validation loss {before:.3f} -> {after:.3f}, {right:.1%} of the labels learnt")


def test_saved_and_loaded_it_takes_the_identical_next_step(name):
    method = build(name)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1, momentum=0.9)

    def step(subject, its_optimizer):
        subject.start_epoch(5)
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
    first, second = build(name).state_dict(), build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("label", [0, 2])
def test_one_image_and_one_class_are_enough(name, label):
    method = build(name)
    batch = Batch(image=torch.rand(1, 1, 32, 32), noisy=torch.full((1, 32, 32), label), ids=("only",))
    for epoch in (0, 1, 5):
        method.start_epoch(epoch)
        loss = method(batch)["loss"]
        loss.backward()
        assert math.isfinite(loss.item())
        method.end_epoch(epoch)
    assert all(p.grad.isfinite().all() for p in method.parameters() if p.grad is not None)
    assert all(value.isfinite().all() for value in method.matrices().values())


def test_a_batch_without_any_label_costs_no_class_loss(name):
    method = build(name)
    batch = Batch(image=torch.rand(2, 1, 32, 32), noisy=torch.full((2, 32, 32), 255), ids=("a", "b"))
    for epoch in stages(method):
        method.start_epoch(epoch)
        parts = method(batch)
        assert parts["class_loss"].item() == 0 and math.isfinite(parts["loss"].item())
        parts["loss"].backward()


def test_zero_weight_equals_ignored(name):
    method, plain = build(name), two_images()
    weight = torch.ones(plain.noisy.shape)
    weight[:, :8] = 0
    weighted = Batch(image=plain.image, noisy=plain.noisy, ids=plain.ids, weight=weight)
    for epoch in stages(method):
        method.start_epoch(epoch)
        ignored = seeded(method, two_images(ignore=True))["class_loss"]
        assert torch.allclose(seeded(method, weighted)["class_loss"], ignored, atol=1e-6)


def test_labels_of_pixels_that_do_not_count_do_not_matter(name):
    method, plain = build(name), two_images()
    weight = torch.ones(plain.noisy.shape)
    weight[:, :8] = 0
    other = plain.noisy.clone()
    other[:, :8] = 2 - other[:, :8]
    ignored, swapped = (
        Batch(image=plain.image, noisy=noisy, ids=plain.ids, weight=weight)
        for noisy in (two_images(ignore=True).noisy, other)
    )
    for epoch in stages(method):
        method.start_epoch(epoch)
        losses = [seeded(method, batch)["loss"].item() for batch in (ignored, swapped)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_parameter_groups_hold_each_trainable_parameter_once(name):
    method = build(name)
    groups = method.parameter_groups()
    assert set(groups) == {"encoder", "heads", "matrices"}
    listed = [id(p) for group in groups.values() for p in group]
    assert sorted(listed) == sorted(id(p) for p in method.parameters() if p.requires_grad)


def test_the_card_is_complete(name):
    cls = method_class(name)
    assert cls.paper and len(cls.__doc__ or "") > 150 and ("Learns:" in cls.__doc__)


def test_unknown_options_name_the_nearest(name):
    with pytest.raises(ValueError, match=f"method '{name}' has no option 'volumeweight'"):
        check_options(name, {"volumeweight": 1})
    with pytest.raises(ValueError, match=f"did you mean '{name}'"):
        method_class(name + "x")
