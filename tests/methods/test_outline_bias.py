from collections.abc import Callable

import torch
from torch.nn import functional

from jcas.methods.outline_bias import OutlineBias


def discs(radius: float, *, images: int = 48, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images of bright discs, masks, and distances to the outline (negative inside) of discs ``radius`` larger."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.arange(64.0)
    rows, columns = torch.meshgrid(place, place, indexing="ij")
    centre = 24 + 16 * torch.rand(images, 2, 1, 1, generator=generator)
    distance = ((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2).sqrt() - 10
    truth = (distance < 0).long()
    image = truth[:, None] + 0.4 * torch.randn(images, 1, 64, 64, generator=generator)
    return image, truth, distance - radius


def jac(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float(((found == 1) & (truth == 1)).sum() / ((found == 1) | (truth == 1)).sum())


def model(images: torch.Tensor, logits: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A model that has learned these logits by heart."""
    known = {image.sum().item(): each for image, each in zip(images, logits, strict=True)}
    return lambda batch: torch.stack([known[image.sum().item()] for image in batch])


def measured(radius: float) -> tuple[OutlineBias, torch.Tensor, torch.Tensor]:
    """The bias of a model that has learned discs ``radius`` too wide, its probabilities, and the truth."""
    image, truth, distance = discs(radius)
    logits = torch.stack([torch.zeros_like(distance), -distance], 1)  # doubtful over a few pixels on either side
    bias = OutlineBias(2)
    for part in range(0, len(image), 8):
        chosen = slice(part, part + 8)
        bias.remember(image[chosen], (distance[chosen] < 0).long())
    bias.measure(model(image, logits))
    return bias, logits.softmax(1), truth


def test_discs_drawn_too_wide_become_narrower():
    bias, probs, truth = measured(3.0)
    assert jac(probs.argmax(1), truth) < 0.65
    assert jac(bias.unbiased(probs).argmax(1), truth) > 0.9
    assert 2 <= float(bias.offset[0] - bias.offset[1]) <= 4  # a nat is a pixel here


def test_discs_drawn_too_narrow_become_wider():
    bias, probs, truth = measured(-3.0)
    assert jac(probs.argmax(1), truth) < 0.55
    assert jac(bias.unbiased(probs).argmax(1), truth) > 0.9


def test_discs_drawn_right_stay():
    bias, probs, _ = measured(0.0)
    assert not bias.offset.any()
    assert bias.unbiased(probs) is probs


def test_images_that_say_nothing_move_nothing():
    bias = OutlineBias(2)
    _, _, distance = discs(3.0)
    logits = torch.stack([torch.zeros_like(distance), -distance], 1)
    noise = torch.randn(len(distance), 1, 64, 64, generator=torch.Generator().manual_seed(1))
    bias.remember(noise, (distance < 0).long())
    bias.measure(model(noise, logits))
    assert not bias.offset.any()


def test_only_the_last_images_are_kept_and_large_ones_are_made_small():
    bias = OutlineBias(2)
    image, _, distance = discs(3.0)
    logits = torch.stack([torch.zeros_like(distance), -distance], 1)
    labels = (distance < 0).long()
    large = functional.interpolate(image, scale_factor=3, mode="nearest")
    for _ in range(4):
        bias.remember(image, labels)  # 192 images, forgotten by the last 144
    for _ in range(3):
        bias.remember(large, labels.repeat_interleave(3, 1).repeat_interleave(3, 2))
    bias.measure(model(large, logits))  # knows no others
    assert float(bias.offset[0] - bias.offset[1]) > 1


def test_offsets_go_halfway_after_the_first_epoch():
    bias, probs, _ = measured(3.0)
    first = bias.offset.clone()
    bias.measure(lambda images: images)  # nothing is kept any more: no evidence
    assert torch.allclose(bias.offset, first / 2)
    assert first.any()
    assert not torch.equal(bias.unbiased(probs), probs)
