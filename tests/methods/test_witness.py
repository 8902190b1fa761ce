"""The witness of colours: what it learns from, when it is asked."""

import torch

from jcas.methods.witness import ColourWitness, known_classes, thinned


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
        witness.end_epoch()
    assert losses[-1] < losses[0] / 4 and witness.heard
    kept = witness.confirmed(image, labels)
    assert (kept == labels).float().mean() > 0.9 and ((kept == labels) | (kept == 255)).all()


def test_an_epoch_without_lessons_changes_nothing():
    witness = ColourWitness(3, 2)
    for known in (False, True):
        witness.known.fill_(known)
        witness.start_epoch()
        witness.end_epoch()
        assert witness.heard == known


def test_it_does_not_see_neighbours():
    torch.manual_seed(0)
    witness, image = ColourWitness(3, 2).eval(), torch.rand(1, 3, 8, 8)
    shuffled = image.flatten(2)[:, :, torch.randperm(64)].view_as(image)
    same = witness(image).flatten(2).sort(2).values
    assert torch.allclose(same, witness(shuffled).flatten(2).sort(2).values, atol=1e-5)


def test_large_images_are_thinned_and_small_ones_are_not():
    maps = torch.arange(64 * 64).view(1, 64, 64)
    assert torch.equal(thinned(maps), maps)
    large = torch.rand(2, 3, 200, 130)
    assert torch.equal(thinned(large), large[..., ::3, ::3])


def test_a_class_counts_as_known_from_a_quarter_on():
    """Labels that are half wrong, as ellipses around cells are, leave no witness more than that."""
    pixels = torch.tensor([[850.0, 650.0], [50.0, 300.0]])  # 300 / 950 - 50 / 900 = 0.26
    assert known_classes(pixels).all()
    pixels[1, 1] = 250.0  # 250 / 900 - 50 / 900 = 0.22
    assert not known_classes(pixels).any()
