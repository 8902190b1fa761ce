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


def measured(radius: float) -> tuple[OutlineBias, torch.Tensor, torch.Tensor]:
    """The bias of a model that has learned discs ``radius`` too wide, its probabilities, and the truth."""
    image, truth, distance = discs(radius)
    probs = learned(distance)
    bias = OutlineBias(2)
    for _ in range(4):  # epochs
        for part in range(0, len(image), 8):
            chosen = slice(part, part + 8)
            bias.remember(image[chosen], probs[chosen], (distance[chosen] < 0).long())
        bias.measure()
    return bias, probs, truth


def learned(distance: torch.Tensor) -> torch.Tensor:
    """Probabilities of a model of these outlines, doubtful over a few pixels on either side."""
    return torch.stack([torch.zeros_like(distance), -distance], 1).softmax(1)


def by_heart(distance: torch.Tensor) -> torch.Tensor:
    """Probabilities of a model of these outlines that is in doubt nowhere."""
    return learned(distance + 6 * distance.sign())


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
    assert not bias.offset.any() and bias.telling
    assert bias.unbiased(probs) is probs


def test_images_that_say_nothing_move_nothing():
    bias = OutlineBias(2)
    _, _, distance = discs(3.0)
    noise = torch.randn(len(distance), 1, 64, 64, generator=torch.Generator().manual_seed(1))
    bias.remember(noise, learned(distance), (distance < 0).long())
    bias.measure()
    assert not bias.offset.any() and not bias.telling


def test_large_images_are_made_small():
    bias = OutlineBias(2)
    image, _, distance = discs(3.0)
    large = functional.interpolate(image, scale_factor=3, mode="nearest")
    probs = functional.interpolate(learned(distance), scale_factor=3, mode="bilinear")
    bias.remember(large, probs, (distance < 0).long().repeat_interleave(3, 1).repeat_interleave(3, 2))
    assert bias._seen[0][0].shape == (48, 1, 128, 128)
    bias.measure()
    assert float(bias.offset[0] - bias.offset[1]) > 1


def test_of_many_images_those_kept_are_spread_over_all():
    bias = OutlineBias(2)
    image, _, distance = discs(3.0, images=4)
    probs, labels = learned(distance), (distance < 0).long()
    for number in range(100):
        bias.remember(image + number, probs, labels)
    kept = [round(float((images - image).mean())) for images, _, _ in bias._seen]
    assert kept == list(range(0, 100, 4))


def test_offsets_go_halfway_to_what_an_epoch_finds():
    image, _, distance = discs(3.0)
    bias = OutlineBias(2)
    offsets = []
    for _ in range(2):
        bias.remember(image, learned(distance), (distance < 0).long())
        bias.measure()
        offsets.append(bias.offset.clone())
    assert offsets[0].any() and torch.allclose(offsets[1], 1.5 * offsets[0])
    bias.measure()  # nothing was kept
    assert torch.equal(bias.offset, offsets[1]) and bias.telling


def test_what_is_left_of_an_offset_that_is_not_seen_again_is_dropped():
    image, _, distance = discs(0.0)
    bias = OutlineBias(2)
    bias.offset.copy_(torch.tensor([0.3, -0.3]))
    left = []
    for _ in range(2):
        bias.remember(image, learned(distance), (distance < 0).long())
        bias.measure()
        left.append([round(value, 6) for value in bias.offset.tolist()])
    assert left == [[0.15, -0.15], [0.0, 0.0]]


def test_a_habit_that_was_seen_twice_stays_when_the_model_has_learned_it_by_heart():
    image, _, distance = discs(3.0)
    bias, offsets = OutlineBias(2), []
    for probs in (learned(distance), learned(distance), *[by_heart(distance)] * 5):
        bias.remember(image, probs, (distance < 0).long())
        bias.measure()
        offsets.append(bias.offset.clone())
        assert bias.habit == (len(offsets) > 1) and not bias.right
    assert int(bias.quiet) >= 3  # looks alone would call these outlines right
    assert offsets[1].any() and all(torch.equal(found, offsets[1]) for found in offsets[2:])


def test_a_shift_that_was_seen_once_is_dropped():
    image, _, distance = discs(3.0)
    bias = OutlineBias(2)
    for probs in (learned(distance), *[by_heart(distance)] * 6):
        bias.remember(image, probs, (distance < 0).long())
        bias.measure()
    assert not bias.habit and not bias.offset.any() and bias.right


def test_outlines_seem_right_after_three_looks_that_found_nothing_and_not_once_one_has():
    image, _, distance = discs(0.0)
    _, _, wide = discs(3.0)
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(1))
    bias, right = OutlineBias(2), []

    def look(image, distance):
        bias.remember(image, learned(distance), (distance < 0).long())
        bias.measure()
        right.append(bias.right)

    for _ in range(4):
        look(image, distance)
    look(image, wide)
    for _ in range(3):
        look(image, distance)
    assert right == [False, False, True, True, False, False, False, True]
    look(noise, distance)  # who cannot see has seen no habit; that proves nothing
    assert not bias.right


def test_looks_that_failed_twice_are_not_believed_again():
    image, _, distance = discs(3.0)
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(1))
    bias, told = OutlineBias(2), []
    for shown in (image, noise, image, noise, image):
        bias.remember(shown, learned(distance), (distance < 0).long())
        bias.measure()
        assert bool(bias.offset.any()) == bool(bias.telling)
        told.append((bool(bias.telling), bias.failed))
    assert told == [(True, False), (False, False), (True, False), (False, True), (False, True)]


def test_nothing_is_moved_where_two_classes_that_touch_look_alike():
    """Discs of two halves: with halves of their own brightness the outlines of both are moved, with equal ones none."""
    _, truth, distance = discs(3.0)
    left = torch.zeros_like(truth, dtype=torch.bool)
    for index, mask in enumerate(truth):
        left[index, :, : int(mask.nonzero()[:, 1].float().mean())] = True
    noise = 0.2 * torch.randn(len(truth), 64, 64, generator=torch.Generator().manual_seed(2))
    halves = [-distance + torch.where(half, 0.0, -6.0) for half in (left, ~left)]
    probs = torch.stack([torch.zeros_like(distance), *halves], 1).softmax(1)
    for brightness, moved in (((1.0, 2.0), True), ((1.0, 1.0), False)):
        image = truth * torch.where(left, *brightness) + noise
        bias = OutlineBias(3)
        bias.remember(image[:, None], probs, probs.argmax(1))
        bias.measure()
        assert bool(bias.offset.any()) is moved and bool(bias.telling) is moved


def test_outlines_that_are_a_little_too_wide_are_neither_moved_nor_right():
    slightly, exactly = measured(1.1)[0], measured(0.0)[0]
    assert not slightly.offset.any() and not slightly.right
    assert not exactly.offset.any() and exactly.right
