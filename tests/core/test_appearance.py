import math

import numpy as np
import pytest
import torch

from jcas.core import drawn, local_appearance, refined_by_appearance, repaired, roughness, unchallenged
from jcas.core.appearance import FLOOR, REACH, blurred


def slow_blur(plane: np.ndarray, sigma: float) -> np.ndarray:
    """Cells by their mean, then a Gaussian of 3 sigma with a repeated border, pixel by pixel."""
    height, width = plane.shape
    step = max(1, int(sigma / 2))
    rows, columns = max(1, round(height / step)), max(1, round(width / step))
    cells = np.zeros((rows, columns))
    for i in range(rows):
        for j in range(columns):
            top, bottom = i * height // rows, -(-(i + 1) * height // rows)
            left, right = j * width // columns, -(-(j + 1) * width // columns)
            cells[i, j] = plane[top:bottom, left:right].mean()
    radius = max(1, math.ceil(3 * sigma / step))
    offsets = range(-radius, radius + 1)
    found = np.zeros_like(cells)
    for i in range(rows):
        for j in range(columns):
            total = weight = 0.0
            for a in offsets:
                for b in offsets:
                    share = math.exp(-((a * step) ** 2 + (b * step) ** 2) / (2 * sigma**2))
                    total += share * cells[min(max(i + a, 0), rows - 1), min(max(j + b, 0), columns - 1)]
                    weight += share
            found[i, j] = total / weight
    return found


def slow_enlarged(cells: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    found = np.zeros(size)
    for i in range(size[0]):
        for j in range(size[1]):
            y = max((i + 0.5) * cells.shape[0] / size[0] - 0.5, 0)
            x = max((j + 0.5) * cells.shape[1] / size[1] - 0.5, 0)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, cells.shape[0] - 1), min(left + 1, cells.shape[1] - 1)
            dy, dx = y - top, x - left
            found[i, j] = (1 - dy) * ((1 - dx) * cells[top, left] + dx * cells[top, right]) + dy * (
                (1 - dx) * cells[bottom, left] + dx * cells[bottom, right]
            )
    return found


def slow_appearance(image: np.ndarray, membership: np.ndarray, window: float) -> np.ndarray:
    channels, height, width = image.shape
    sigma = window * math.sqrt(height * width)
    found = np.zeros((len(membership), height, width))
    for c, weight in enumerate(membership):
        mass = np.maximum(slow_blur(weight, sigma), 1e-6)
        for k in range(channels):
            colour = (image[k] - image[k].mean()) / image[k].std()
            mean = slow_blur(weight * colour, sigma) / mass
            variance = slow_blur(weight * colour**2, sigma) / mass - mean**2 + FLOOR**2
            mean, precision, logarithm = (
                slow_enlarged(cells, (height, width)) for cells in (mean, 1 / variance, np.log(variance))
            )
            found[c] -= ((colour - mean) ** 2 * precision + logarithm) / (2 * math.sqrt(channels))
    return found


@pytest.mark.parametrize(("window", "channels"), [(0.1, 1), (0.3, 3)])  # on the image's grid, and on a coarser one
def test_local_appearance_matches_its_formula(window: float, channels: int):
    torch.manual_seed(0)
    image = torch.rand(2, channels, 14, 17, dtype=torch.float64)
    membership = torch.randn(2, 3, 14, 17, dtype=torch.float64).softmax(1)
    fast = local_appearance(image, membership, window=window)
    for b in range(2):
        slow = slow_appearance(image[b].numpy(), membership[b].numpy(), window)
        np.testing.assert_allclose(fast[b].numpy(), slow, rtol=1e-9, atol=1e-9)


def slow_repaired(image: np.ndarray, noisy: np.ndarray, probs: np.ndarray, belief: float, rounds: int) -> np.ndarray:
    size, classes = noisy.shape, len(probs)
    prior = np.zeros_like(probs)
    for c in range(classes):
        given = (noisy == c).astype(float)
        near = slow_enlarged(slow_blur(given, REACH * math.sqrt(noisy.size)), size) > 1e-3
        known = noisy != 255
        prior[c] = np.where(known, (1 - belief) * given + belief * probs[c] * near, probs[c] * near)
    logarithm = np.log(np.maximum(prior, 1e-9))
    found = np.exp(logarithm) / np.exp(logarithm).sum(0)
    for _ in range(rounds):
        scores = np.exp(logarithm + slow_appearance(image, found, 1 / 8))
        found = scores / scores.sum(0)
    return found


def test_repaired_matches_its_formula_with_ignored_pixels():
    torch.manual_seed(1)
    image, noisy = torch.rand(1, 1, 20, 18, dtype=torch.float64), torch.zeros(1, 20, 18, dtype=torch.long)
    noisy[:, 5:12, 4:12] = 1
    noisy[:, 13:17, 10:15] = 2
    noisy[:, :3, :4] = 255
    probs = torch.randn(1, 3, 20, 18, dtype=torch.float64).softmax(1)
    fast = repaired(image, noisy, probs, belief=0.4, rounds=2)[0]
    slow = slow_repaired(image[0].numpy(), noisy[0].numpy(), probs[0].numpy(), 0.4, 2)
    np.testing.assert_allclose(fast.numpy(), slow, rtol=1e-8, atol=1e-10)


def scene() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A bright blob with a dent, its truth, and the full disc that a hurried annotator drew."""
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    disc = (rows - 32) ** 2 + (columns - 32) ** 2 < 15**2
    dent = (rows - 32) ** 2 + (columns - 44) ** 2 < 9**2
    truth = disc & ~dent
    generator = torch.Generator().manual_seed(0)
    image = 0.3 + 0.4 * truth + 0.05 * torch.randn(64, 64, generator=generator)
    return image[None, None], truth.long()[None], disc.long()[None]


def wrong(labels: torch.Tensor, truth: torch.Tensor) -> float:
    return (labels != truth).float().mean().item()


def test_image_undoes_a_drawn_outline_that_label_and_model_agree_on():
    image, truth, label = scene()
    model = torch.where(label == 1, 0.6, 0.4)
    probs = torch.stack([1 - model, model], 1)
    assert wrong(repaired(image, label, probs, rounds=5).argmax(1), truth) < 0.3 * wrong(label, truth)
    assert wrong(refined_by_appearance(image, probs, power=1.0, rounds=3).argmax(1), truth) < 0.5 * wrong(label, truth)


def test_a_class_is_not_found_far_from_its_labels():
    image, _, label = scene()
    image = torch.cat([image, image], 3)  # a second blob that nobody labelled
    label = torch.cat([label, torch.zeros_like(label)], 2)
    probs = torch.full((1, 2, 64, 128), 0.5)
    found = repaired(image, label, probs).argmax(1)
    assert found[:, :, :64].sum() > 0 and not found[:, :, 90:].any()


def test_a_flat_image_has_nothing_to_say():
    _, _, label = scene()
    probs = torch.full((1, 2, 64, 64), 0.5)
    assert torch.equal(repaired(torch.full((1, 1, 64, 64), 0.7), label, probs).argmax(1), label)


def flips(labels: torch.Tensor, rate: float) -> torch.Tensor:
    hit = torch.rand(labels.shape, generator=torch.Generator().manual_seed(0)) < rate
    return torch.where(hit, 1 - labels, labels)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5])
def test_roughness_tells_flipped_labels_from_drawn_ones(rate: float):
    _, truth, label = scene()
    assert drawn(roughness(truth, 2).item()) and drawn(roughness(label, 2).item())
    assert not drawn(roughness(flips(truth, rate), 2).item())


@pytest.mark.parametrize("factor", [1.5, 2, 3, 4])
def test_flips_are_seen_in_masks_that_were_enlarged(factor: float):
    _, truth, label = scene()

    def enlarged(labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(labels[:, None].float(), scale_factor=factor)[:, 0].long()[:, 3:, 5:]

    assert not drawn(roughness(enlarged(flips(truth, 0.3)), 2).item())
    assert drawn(roughness(enlarged(label), 2).item())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("size", [(80, 80), (96, 96), (112, 112), (126, 126), (160, 160), (219, 219), (96, 128)])
def test_an_enlarged_mask_is_as_rough_as_the_mask_it_was(size: tuple[int, int], mode: str):
    _, truth, _ = scene()
    noisy = flips(truth, 0.4)
    enlarged = torch.nn.functional.interpolate(noisy[:, None].float(), size=size, mode=mode)[:, 0].long()
    assert torch.equal(roughness(enlarged, 2), roughness(noisy, 2)) and not drawn(roughness(noisy, 2).item())
    inside = enlarged[:, 2:, 3:]  # a crop that may cut through a repeated row
    assert roughness(inside, 2).item() == pytest.approx(roughness(noisy, 2).item(), abs=4e-3)


def test_quiet_rows_around_the_noise_do_not_hide_that_a_mask_was_enlarged():
    _, truth, _ = scene()
    noisy = flips(truth, 0.4)
    noisy[:, :9] = noisy[:, 50:] = noisy[:, :, :7] = noisy[:, :, 58:] = 0
    enlarged = torch.nn.functional.interpolate(noisy[:, None].float(), scale_factor=1.75)[:, 0].long()
    assert torch.equal(roughness(enlarged, 2), roughness(noisy, 2))


def test_rows_that_are_equal_by_chance_stay():
    """Runs of one and two rows, but here and there: no factor repeats rows so."""
    labels = flips(scene()[1], 0.4)
    rows, columns = (torch.arange(64) for _ in range(2))
    for places in (rows, columns):
        places[[5, 6, 9, 12, 14, 18, 20, 23, 25, 28, 30, 33, 35, 38]] -= 1
    doubled = labels[:, rows][:, :, columns]
    around = doubled.unfold(1, 3, 1).unfold(2, 3, 1).flatten(3)
    alike = (around == around[..., 4:5]).sum(3) - 1
    outline = alike < 8
    expected = (outline & (alike < 2)).sum() / (outline.sum() + 20)
    assert roughness(doubled, 2).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("width", [1, 2])
def test_thin_vessels_are_drawn(width: int):
    labels = torch.zeros(1, 64, 64, dtype=torch.long)
    for row in range(4, 60):
        for start in (4, 30, 50):
            column = start + round(4 * math.sin(row / 6))
            labels[0, row, column : column + width] = 1
    assert drawn(roughness(labels, 2).item())


def test_boxes_are_drawn():
    labels = torch.zeros(1, 64, 64, dtype=torch.long)
    labels[0, 10:34, 10:40] = labels[0, 40:50, 44:60] = 1
    assert roughness(labels, 2).tolist() == [0.0]


def test_roughness_is_the_share_of_lonely_pixels_on_outlines():
    labels = torch.randint(0, 3, (2, 9, 11), generator=torch.Generator().manual_seed(0))
    labels[0, 2, 3], labels[1] = 255, 1
    outline = lonely = 0
    for row in range(1, 8):
        for column in range(1, 10):
            block = labels[0, row - 1 : row + 2, column - 1 : column + 2].flatten().tolist()
            if 255 not in block and len(set(block)) > 1:
                outline += 1
                lonely += block.count(block[4]) - 1 < 2
    found = roughness(labels, 3)
    assert found[0].item() == pytest.approx(lonely / (outline + 20)) and outline > 40
    assert found[1].isnan()  # no outline
    assert roughness(torch.zeros(1, 1, 1, dtype=torch.long), 2).isnan().all()


def test_blur_keeps_constants_and_needs_no_large_image():
    assert torch.allclose(blurred(torch.full((1, 2, 5, 40), 0.3), 30.0), torch.tensor(0.3))


def test_labels_stand_if_likeliest_or_above_the_median_of_their_class():
    torch.manual_seed(3)
    noisy = torch.randint(0, 3, (2, 9, 7))
    noisy[torch.rand(noisy.shape) < 0.2] = 255
    found = (4 * torch.randn(2, 3, 9, 7)).softmax(1)
    slow = torch.full_like(noisy, 255)
    for index in range(3):
        places = (noisy == index).nonzero().tolist()
        shares = sorted(found[b, index, i, j].item() for b, i, j in places)
        median = shares[len(shares) // 2]
        for b, i, j in places:
            if found[b, index, i, j].item() >= min(found[b, :, i, j].max().item(), median):
                slow[b, i, j] = index
    assert torch.equal(unchallenged(noisy, found), slow)
    for index in range(3):
        assert (slow == index).sum() >= (noisy == index).sum() // 2


def test_a_few_classes_at_a_time_are_all_of_them(monkeypatch):
    image, membership = torch.rand(2, 3, 24, 20), torch.rand(2, 5, 24, 20).softmax(1)
    whole = local_appearance(image, membership)
    monkeypatch.setattr("jcas.core.appearance._MOST_AT_ONCE", 2 * image.numel())
    assert torch.equal(local_appearance(image, membership), whole)


def test_half_precision_around_it_changes_nothing():
    image, _, label = scene()
    membership = torch.nn.functional.one_hot(label, 2).movedim(-1, 1).float()
    plain = local_appearance(image, membership)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(local_appearance(image, membership), plain)


def test_classes_of_a_group_are_refined_as_one_and_keep_their_shares():
    generator = torch.Generator().manual_seed(3)
    image = torch.rand(2, 1, 12, 10, generator=generator, dtype=torch.float64)
    probs = torch.rand(2, 4, 12, 10, generator=generator, dtype=torch.float64).softmax(1)
    groups = torch.tensor([0, 1, 1, 3])
    found = refined_by_appearance(image, probs, groups=groups, rounds=1)
    likely = local_appearance(image, probs).exp()
    expected = torch.empty_like(probs)
    for c in range(4):
        alike = [m for m in range(4) if groups[m] == groups[c]]
        density = sum(probs[:, m] * likely[:, m] for m in alike) / sum(probs[:, m] for m in alike)
        expected[:, c] = probs[:, c] * density.sqrt()
    assert torch.allclose(found, expected / expected.sum(1, keepdim=True))
    assert torch.allclose(found[:, 1] / found[:, 2], probs[:, 1] / probs[:, 2])
    assert torch.allclose(
        refined_by_appearance(image, probs, groups=torch.arange(4)), refined_by_appearance(image, probs)
    )
    assert torch.allclose(refined_by_appearance(image, probs, groups=torch.zeros(4).long()), probs)
