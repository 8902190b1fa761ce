"""The witness of colours: what it learns from, when it is asked."""

import pytest
import torch
from scipy.ndimage import binary_erosion

from jcas.methods.witness import (
    ColourWitness,
    colour_and_variation,
    distinct_classes,
    known_classes,
    object_cores,
    thinning,
)


def test_it_learns_colours_and_then_knows_them():
    torch.manual_seed(0)
    image = torch.rand(2, 3, 24, 24)
    labels = (image[:, 0] > image[:, 0].mean()).long()
    witness = ColourWitness(3, 2)
    optimizer = torch.optim.Adam(witness.parameters(), 0.05)
    losses = []
    for _ in range(2):
        witness.start_epoch()
        for _ in range(60):
            optimizer.zero_grad()
            loss = witness.lesson(image, labels, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        witness.end_epoch(listened=False)
    assert losses[-1] < losses[0] / 4 and witness.heard
    kept = witness.confirmed(image, labels)
    assert (kept == labels).float().mean() > 0.9 and ((kept == labels) | (kept == 255)).all()


def a_drawn_class(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Grey bars on red, called 1 (above) and 2 (below) within boxes twice as wide; the colours of 1 and 2 are alike."""
    generator = torch.Generator().manual_seed(seed)
    colour, truth, noisy = torch.zeros(2, 3, 40, 40), *(torch.zeros(2, 40, 40, dtype=torch.long) for _ in range(2))
    colour[:, 0] = 0.8
    for c, rows in ((1, slice(4, 18)), (2, slice(22, 36))):
        truth[:, rows, 16:24], noisy[:, rows, 12:28] = c, c
    colour[(truth > 0)[:, None].expand_as(colour)] = 0.5
    return colour + 0.05 * torch.rand(colour.shape, generator=generator), truth, noisy


def taught(image: torch.Tensor, labels: torch.Tensor, num_classes: int, *, epochs: int = 2) -> ColourWitness:
    torch.manual_seed(0)
    witness = ColourWitness(image.shape[1], num_classes)
    optimizer = torch.optim.Adam(witness.parameters(), 0.05)
    for _ in range(epochs):
        witness.start_epoch()
        for _ in range(40):
            optimizer.zero_grad()
            witness.lesson(image, labels, labels).backward()
            optimizer.step()
        witness.end_epoch(listened=False)
    return witness.eval()


def test_who_does_not_know_all_classes_still_sees_what_is_background():
    image, truth, noisy = a_drawn_class()
    witness = taught(image, noisy, 3)
    assert not witness.heard and witness.distinct.tolist() == [False, True, True]
    noisy[:, 0] = 255
    kept = witness.unlike_background(image, noisy)
    assert (kept[(noisy > 0) & (truth == 0)] == 255).float().mean() > 0.95  # red within a box
    right = (noisy == truth) & (noisy != 255)
    assert (kept[right] == noisy[right]).float().mean() > 0.95 and (kept[noisy == 0] == 0).all()
    assert (kept[noisy == 255] == 255).all()


def test_a_class_without_a_colour_of_its_own_is_not_judged():
    image, truth, noisy = a_drawn_class()
    image[:, :, 20:36] = image[:, :, :4].repeat(1, 1, 4, 1)  # the second class has the colours of the background
    witness = taught(image, noisy, 3)
    assert witness.distinct.tolist() == [False, True, False]
    kept = witness.unlike_background(image, noisy)
    assert torch.equal(kept[noisy != 1], noisy[noisy != 1]) and (kept[(noisy == 1) & (truth == 0)] == 255).any()
    probs = torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(1)).softmax(1)
    found = witness.weighed(image, probs)
    assert torch.equal(found[:, 2], probs[:, 2])  # neither gains nor loses
    assert torch.allclose(found.sum(1), torch.ones(2, 40, 40)) and not torch.equal(found[:, 1], probs[:, 1])


def an_object_of_two_colours(wide: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A square on red and green stripes, its left part blue, its last ``wide`` columns of 20 green."""
    image, labels = torch.zeros(2, 3, 40, 40), torch.zeros(2, 40, 40, dtype=torch.long)
    image[:, 0], image[:, :, :, :8] = 0.8, torch.tensor([0.0, 0.8, 0.0]).view(3, 1, 1)
    labels[:, 10:30, 10:30] = 1
    image[:, :, 10:30, 10:30] = torch.tensor([0.0, 0.0, 0.8]).view(3, 1, 1)
    image[:, :, 10:30, 30 - wide : 30] = torch.tensor([0.0, 0.8, 0.0]).view(3, 1, 1)
    return image + 0.02 * torch.rand(image.shape, generator=torch.Generator().manual_seed(0)), labels


def test_who_denies_the_cores_of_objects_is_not_heard():
    """Half of a tool has the colours of tissue: it is labelled rightly. A rim of such colours may be wrong."""
    half, rim = (taught(*an_object_of_two_colours(wide), 2) for wide in (10, 4))
    assert half.known.all() and half.denies and not half.heard
    assert rim.known.all() and not rim.denies and rim.heard
    left = an_object_of_two_colours(4)
    assert (rim.confirmed(*left)[:, 10:30, 26:30] == 255).float().mean() > 0.9


def test_lines_too_thin_to_have_an_inside_are_core():
    """Two of each vessel's four columns are labelled; what has the colour of most of them is called background."""
    image, labels = torch.zeros(2, 3, 40, 40), torch.zeros(2, 40, 40, dtype=torch.long)
    image[:, 0] = 0.8
    for left in (4, 14, 24, 34):
        image[:, :, :, left : left + 4] = torch.tensor([0.0, 0.0, 0.8]).view(3, 1, 1)
        labels[:, :, left + 1 : left + 3] = 1
    image[:, 1] += (
        0.5 * labels * (torch.arange(40) % 3 == 0).view(-1, 1)
    )  # a third stands out, or it would know nothing
    image[:, 2, :2] = 0.8  # and a little more of the colour is called background
    image += 0.02 * torch.rand(image.shape, generator=torch.Generator().manual_seed(0))
    witness = taught(image, labels, 2)
    assert witness.known.all() and 0.6 < witness.denied < 0.7 and not witness.heard


def test_cores_are_what_is_left_while_a_quarter_is():
    generator = torch.Generator().manual_seed(3)
    labels = torch.nn.functional.avg_pool2d(torch.rand(6, 40, 40, generator=generator), 5, 1, 2)
    labels = (labels > 0.47).long() * torch.randint(1, 3, (6, 40, 40), generator=generator)
    labels[0], labels[1], labels[2, :6] = 0, 1, 255  # no object, no outline, unknown
    labels[3, :, 12:], labels[4] = 255, 0
    labels[4, 4:6, 4:9] = 1  # two pixels wide
    for found, given in zip(object_cores(labels), labels, strict=True):
        whole, known = (given != 0).numpy(), (given != 255).numpy()
        slow = whole
        while True:
            shrunk = binary_erosion(slow, [[1] * 3] * 3, border_value=1)
            if (shrunk & known).sum() < (whole & known).sum() / 4 or (shrunk == slow).all():
                break
            slow = shrunk
        assert torch.equal(found, torch.tensor(slow & known))
    assert not object_cores(labels)[0].any() and torch.equal(object_cores(labels)[4], labels[4] == 1)


def test_colours_weigh_whatever_the_shares():
    """p_c ((1 - V0) / (1 - r0) / (V0 / r0))^(1/2) beside p_0, from the probabilities."""
    image, _, noisy = a_drawn_class()
    witness = taught(image, noisy, 3)
    probs = torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(1)).softmax(1)
    background, share = witness(image).double().softmax(1)[:, 0], witness.shares[0].double()
    weight = ((1 - background) / (1 - share) / (background / share)).sqrt()
    expected = torch.stack([probs[:, 0], probs[:, 1] * weight, probs[:, 2] * weight], 1)
    assert torch.allclose(witness.weighed(image, probs).double(), expected / expected.sum(1, keepdim=True), atol=1e-4)
    assert torch.isclose(share, (noisy == 0).double().mean())


def test_of_grey_images_it_knows_no_class():
    """One grey may be heart here and tissue there; the same image in colour is judged."""
    image, _, noisy = a_drawn_class()
    tinted = image.mean(1, keepdim=True) * torch.tensor([1.0, 0.7, 0.5]).view(1, 3, 1, 1)
    for grey in (tinted, image.mean(1, keepdim=True)):
        witness = taught(grey, noisy, 3)
        assert not witness.known.any() and not witness.distinct.any()
    assert taught(image, noisy, 3).distinct.any()


def test_colour_is_what_lies_off_the_ray_of_the_brightness():
    torch.manual_seed(0)
    pixels = torch.rand(3, 3, 6, 7, dtype=torch.float64)
    for image, (colour, variation) in zip(pixels.flatten(2), colour_and_variation(pixels), strict=True):
        values = torch.linalg.svdvals(image)  # singular values of the pixels, not centred
        assert torch.isclose((values[1:] ** 2).sum() / image.shape[1], colour)
        assert torch.isclose(image.var(1, correction=0).sum(), variation)
    assert colour_and_variation(torch.rand(2, 1, 5, 5))[:, 0].tolist() == [0.0, 0.0]


def test_grey_images_with_noise_in_each_channel_stay_grey():
    """Flat ones among them, whose only variation is that noise."""
    image, _, noisy = a_drawn_class()
    grey = image.mean(1, keepdim=True).expand(-1, 3, -1, -1).clone()
    images = torch.cat([grey, torch.full_like(grey[:1], 0.5)])
    images = images + 0.004 * torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    assert not taught(images, torch.cat([noisy, noisy[:1]]), 3).distinct.any()


def test_classes_are_distinct_from_a_quarter_on():
    fitting = torch.zeros(3, 2, 2)  # class, label, colour
    fitting[1] = torch.tensor([[80.0, 20.0], [54.0, 46.0]])
    fitting[2] = torch.tensor([[80.0, 20.0], [56.0, 44.0]])
    assert distinct_classes(fitting).tolist() == [False, True, False]


def test_an_epoch_without_lessons_changes_nothing():
    witness = ColourWitness(3, 2)
    for known in (False, True):
        witness.known.fill_(known)
        witness.start_epoch()
        witness.end_epoch(listened=False)
        assert witness.heard == known


@pytest.mark.parametrize("listened", [False, True])
def test_who_was_listened_to_and_no_longer_deserves_it_is_not_heard_again(listened):
    image, labels = an_object_of_two_colours(4)
    witness = taught(image, labels, 2).train()
    assert witness.heard
    for taught_now, heard in ((torch.zeros_like(labels), False), (labels, not listened)):
        optimizer = torch.optim.AdamW(witness.parameters(), 0.02)
        for _ in range(2):
            witness.start_epoch()
            for _ in range(60):
                optimizer.zero_grad()
                witness.lesson(image, labels, taught_now).backward()
                optimizer.step()
            witness.start_epoch()
            witness.lesson(image, labels, taught_now)
            witness.end_epoch(listened=listened)
        assert witness.heard == heard
    assert bool(witness.silenced) == listened and witness.known.all() and not witness.denies


def test_it_does_not_see_neighbours():
    torch.manual_seed(0)
    witness, image = ColourWitness(3, 2).eval(), torch.rand(1, 3, 8, 8)
    shuffled = image.flatten(2)[:, :, torch.randperm(64)].view_as(image)
    same = witness(image).flatten(2).sort(2).values
    assert torch.allclose(same, witness(shuffled).flatten(2).sort(2).values, atol=1e-5)


def test_large_images_are_thinned_and_small_ones_are_not():
    assert thinning(torch.zeros(1, 64, 64), 64 * 64) == 1
    assert thinning(torch.zeros(2, 3, 200, 130), 64 * 64) == 3
    image, labels = an_object_of_two_colours(4)
    image, labels = (maps.repeat_interleave(5, -1).repeat_interleave(5, -2) for maps in (image, labels))
    witness = ColourWitness(3, 2)
    witness.lesson(image, labels, labels)
    assert witness.counts.sum() == 2 * 50 * 50  # every fourth of 200
    assert witness.cores[0] == object_cores(labels[:, ::2, ::2])[:, ::2, ::2].sum()


def test_a_class_counts_as_known_from_a_quarter_on():
    """Labels that are half wrong, as ellipses around cells are, leave no witness more than that."""
    pixels = torch.tensor([[850.0, 650.0], [50.0, 300.0]])  # 300 / 950 - 50 / 900 = 0.26
    assert known_classes(pixels).all()
    pixels[1, 1] = 250.0  # 250 / 900 - 50 / 900 = 0.22
    assert not known_classes(pixels).any()
