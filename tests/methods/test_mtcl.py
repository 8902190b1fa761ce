"""MTCL: the teacher follows, labels move softly, trusted images stay as they are."""

import math

import pytest
import torch

from jcas.methods.mtcl import MTCL, corrected_labels, rampup
from jcas.models import build_model
from jcas.schema import Batch


def build(**options) -> MTCL:
    torch.manual_seed(0)
    return MTCL(build_model("tiny", num_classes=3, channels=1), 3, **{"warmup": 1, "ramp": 2, **options})


def batch(*ids: str) -> Batch:
    generator = torch.Generator().manual_seed(1)
    count = len(ids)
    return Batch(
        image=torch.rand(count, 1, 32, 40, generator=generator),
        noisy=torch.randint(0, 3, (count, 32, 40), generator=generator),
        ids=ids,
    )


def test_teacher_is_the_moving_average_of_the_student():
    method = build(decay=0.9)
    name, weight = next(iter(method.model.named_parameters()))
    teacher = dict(method.teacher.named_parameters())[name]
    expected = weight.detach().clone()
    for step in range(12):
        with torch.no_grad():
            weight += 1
        method._follow()
        decay = min(1 - 1 / (step + 1), 0.9)  # by hand: the first student is copied
        expected = decay * expected + (1 - decay) * weight.detach()
        assert torch.allclose(teacher, expected, atol=1e-5)
    assert not any(p.requires_grad for p in method.teacher.parameters())


def test_evaluation_leaves_the_teacher_alone():
    method = build().eval()
    before = {key: value.clone() for key, value in method.teacher.named_parameters()}
    with torch.no_grad():
        for parameter in method.model.parameters():
            parameter += 1
    method(batch("a"))
    assert all(torch.equal(before[key], value) for key, value in method.teacher.named_parameters())


def test_labels_move_by_their_amount_and_stay_distributions():
    target = torch.eye(3)[[0, 1, 2]].T.view(1, 3, 1, 3)
    wrong = torch.tensor([[[True, True, False]]])
    believed, amount = torch.tensor([[[1, 1, 0]]]), torch.tensor([[[0.25, 0.8, 0.9]]])
    moved = corrected_labels(target, wrong, believed, amount)[0, :, 0].T
    assert torch.allclose(moved, torch.tensor([[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def test_labels_are_believed_in_the_warm_up_and_corrected_after():
    method, images = build(passes=2), batch("a", "b")
    probs = torch.full((2, 3, 32, 40), 1 / 3)
    given = torch.nn.functional.one_hot(images.noisy, 3).movedim(-1, 1).float()
    everywhere = torch.ones(images.noisy.shape)
    method.start_epoch(0)
    assert torch.equal(method._targets(images, probs, everywhere), given)
    method.start_epoch(1)
    soft = method._targets(images, probs, everywhere)
    changed = (soft != given).any(1)
    assert changed.any() and not changed.all()
    assert torch.allclose(soft.sum(1), torch.ones(images.noisy.shape), atol=1e-5)
    assert ((soft[:, :, :] > 0) & (soft < 1)).any(), "soft labels stay soft"


def test_trusted_images_are_supervised_by_their_own_labels_alone():
    method, images = build(), batch("a", "b")
    method.trusted = frozenset({"b"})
    method.start_epoch(3)
    counts = torch.ones(images.noisy.shape)
    others = torch.tensor([True, False])[:, None, None]
    target = method._targets(images, torch.full((2, 3, 32, 40), 1 / 3), counts * others)
    given = torch.nn.functional.one_hot(images.noisy, 3).movedim(-1, 1).float()
    assert torch.equal(target[1], given[1]) and not torch.equal(target[0], given[0])
    parts = method(images)
    assert {"class_loss", "corrected_loss", "consistency"} <= set(parts)
    alone = method(batch("c"))  # no trusted image in the batch: nothing to be sure of
    assert alone["class_loss"].item() == 0 and alone["corrected_loss"].item() > 0


def test_ramp_rises_from_exp_minus_five_to_one():
    assert rampup(0, 10) == pytest.approx(math.exp(-5)) and rampup(5, 10) == pytest.approx(math.exp(-1.25))
    assert rampup(10, 10) == rampup(99, 10) == rampup(0, 0) == 1


def test_schedule_follows_the_length_of_the_run():
    assert MTCL.schedule(40) == {"warmup": 8, "ramp": 30}
