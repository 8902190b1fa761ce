import itertools
import math

import pytest
import torch

from jcas.core import local_appearance
from jcas.core.appearance import REACH
from jcas.core.counting import CORE, core_confidence
from jcas.core.outlines import (
    LEAST_SHIFT,
    WORTH,
    OutlineCounts,
    class_cores,
    class_offsets,
    count_outlines,
    look_groups,
    near_outlines,
    outline_thresholds,
)

CLASSES = 3


def scene(seed: int = 0, size: int = 24) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two noisy images, probabilities that follow them loosely, labels."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(2, 2, size, size, generator=generator, dtype=torch.float64)
    labels = torch.zeros(2, size, size, dtype=torch.long)
    labels[:, 4:14, 5:18], labels[0, 8:20, 10:16], labels[1, 0, 0] = 1, 2, 255
    given = torch.nn.functional.one_hot(labels.clamp_max(2), CLASSES).movedim(-1, 1)
    logits = 2 * given + torch.randn(2, CLASSES, size, size, generator=generator, dtype=torch.float64)
    image[:, 0] += labels.clamp_max(2)
    return image, logits.softmax(1), labels


def test_near_outlines_are_pixels_with_another_class_in_reach():
    _, _, labels = scene()
    radius = round(REACH * 24)
    found = near_outlines(labels, CLASSES)
    for image, i, j in itertools.product(range(2), range(24), range(24)):
        around = labels[image, max(0, i - radius) : i + radius + 1, max(0, j - radius) : j + radius + 1]
        classes = set(around.flatten().tolist()) - {255}
        assert bool(found[image, i, j]) == (len(classes) > 1 and int(labels[image, i, j]) != 255)
    assert 0 < int(found.sum()) < found.numel()


def test_cores_are_the_surest_quarter_of_each_class():
    _, probs, labels = scene()
    where = near_outlines(labels, CLASSES)
    least = core_confidence(probs.movedim(1, 0).flatten(1), where.flatten())
    cores = class_cores(probs, where, least)
    for index in range(CLASSES):
        own = [
            (float(probs[b, index, i, j]), (b, i, j))
            for b, i, j in itertools.product(range(2), range(24), range(24))
            if bool(where[b, i, j]) and int(probs[b, :, i, j].argmax()) == index
        ]
        surest = sorted(own, reverse=True)[: int(CORE * len(own)) + 1]
        assert {tuple(place) for place in cores[:, index].nonzero().tolist()} == {place for _, place in surest}


def test_a_class_without_pixels_has_no_core():
    probs = torch.tensor([[0.9, 0.8], [0.1, 0.2]])
    assert core_confidence(probs, torch.tensor([True, True])).tolist()[1] == 2


def slow_counts(image, probs, where, cores):
    """Pixel by pixel: votes as (log-ratio, looks like a), looks of the cores, steps of the outline."""
    likely = local_appearance(image, cores.to(image))
    votes, looks, length = {}, {}, {}
    for a, b in itertools.combinations(range(CLASSES), 2):
        a, b = b, a
        votes[a, b], looks[a, b], length[a, b] = [], [[], []], 0
        for k in range(len(image)):
            if int(cores[k, a].sum()) <= 5 or int(cores[k, b].sum()) <= 5:
                continue
            named = probs[k].argmax(0)
            for i, j in itertools.product(range(24), range(24)):
                p, like_a = probs[k, :, i, j], bool(likely[k, a, i, j] > likely[k, b, i, j])
                if set(p.argsort(descending=True)[:2].tolist()) == {a, b} and bool(where[k, i, j]):
                    votes[a, b].append((math.log(p[a] / p[b]), like_a))
                for side, index in enumerate((b, a)):
                    if bool(cores[k, index, i, j]):
                        looks[a, b][side].append(like_a)
                for y, x in ((i + 1, j), (i, j + 1)):
                    if y < 24 and x < 24 and {int(named[i, j]), int(named[y, x])} == {a, b}:
                        length[a, b] += 1
    return votes, looks, length


def test_counts_and_thresholds_are_the_formula(monkeypatch):
    monkeypatch.setattr("jcas.core.outlines._LEAST_LENGTH", 1)
    monkeypatch.setattr("jcas.core.outlines.MOST_DECEIVED", math.inf)
    image, probs, labels = scene()
    where = near_outlines(labels, CLASSES)
    least = core_confidence(probs.movedim(1, 0).flatten(1), where.flatten())
    cores = class_cores(probs, where, least)
    counts = OutlineCounts.none(CLASSES, torch.device("cpu"))
    for k in range(2):  # batches add up
        count_outlines(counts, image[k : k + 1], probs[k : k + 1], where[k : k + 1], cores[k : k + 1])
    votes, looks, length = slow_counts(image, probs, where, cores)
    found = outline_thresholds(counts, least_shift=0.0)
    assert torch.equal(found, -found.T)
    compared = 0
    for (a, b), seen in votes.items():
        assert int(counts.length[a, b]) == length[a, b]
        assert counts.votes[a, b].sum(0).tolist() == [sum(not like for _, like in seen), sum(like for _, like in seen)]
        if not looks[a, b][0] or not looks[a, b][1]:
            continue
        beta, alpha = (sum(side) / len(side) for side in looks[a, b])
        if alpha - beta < 0.5:
            assert found[a, b] == 0
            continue
        edges = [-5 + 0.5 * k for k in range(21)]

        def best(needed, seen=seen, alpha=alpha, beta=beta, edges=edges):
            sums = [sum((like - beta) / (alpha - beta) - needed for r, like in seen if r >= t) for t in edges]
            return edges[max(range(21), key=sums.__getitem__)]

        wanted = best(0.5)
        if wanted > 0 and b == 0:
            wanted = max(0.0, best(WORTH))
        assert float(found[a, b]) == pytest.approx(wanted)
        compared += 1
    assert compared >= 2


def test_a_shift_of_less_than_three_quarters_of_a_pixel_is_no_evidence():
    counts = OutlineCounts.none(2, torch.device("cpu"))
    counts.cores[1, 0] = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    counts.votes[1, 0, 11] = torch.tensor([749.0, 0.0])  # log-ratio 0 to 0.5, given to 1, looking like 0
    counts.votes[1, 0, 12] = torch.tensor([0.0, 2000.0])
    counts.length[1, 0] = 1000.0
    assert LEAST_SHIFT == 0.75 and outline_thresholds(counts)[1, 0] == 0
    counts.votes[1, 0, 11, 0] += 1
    assert outline_thresholds(counts)[1, 0] == 0.5


@pytest.mark.parametrize(("deceived", "found"), [(240.0, 0.5), (260.0, 0.0)])
def test_looks_that_deceive_near_outlines_are_not_believed(deceived, found):
    """The class that would lose pixels has a last thousand of its own; some of them look like the other."""
    counts = OutlineCounts.none(2, torch.device("cpu"))
    counts.cores[1, 0] = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    counts.votes[1, 0, 11] = torch.tensor([900.0, 0.0])
    counts.votes[1, 0, 20] = torch.tensor([deceived, 1000 - deceived])  # 4.5 to 5
    counts.length[1, 0] = 1000.0
    assert outline_thresholds(counts)[1, 0] == found
    mirrored = OutlineCounts.none(2, torch.device("cpu"))
    mirrored.cores[1, 0], mirrored.length[1, 0] = counts.cores[1, 0], 1000.0
    mirrored.votes[1, 0] = counts.votes[1, 0].flip(0, 1)  # now class 0 would lose
    assert float(outline_thresholds(mirrored)[1, 0]) == (-4.5 if found else 0)  # the lowest of equally good ones


def test_offsets_move_every_outline_by_its_threshold():
    counts = OutlineCounts.none(3, torch.device("cpu"))
    counts.length[1, 0] = counts.length[2, 1] = 1000.0
    thresholds = torch.zeros(3, 3, dtype=torch.float64)
    thresholds[1, 0], thresholds[2, 1] = 1.5, -0.5
    offsets = class_offsets(thresholds - thresholds.T, counts)
    assert offsets[1] - offsets[0] == pytest.approx(-1.5) and offsets[2] - offsets[1] == pytest.approx(0.5)
    assert float(offsets.sum()) == pytest.approx(0, abs=1e-12)


def test_outlines_that_disagree_are_heard_by_their_length():
    counts = OutlineCounts.none(3, torch.device("cpu"))
    thresholds = torch.zeros(3, 3, dtype=torch.float64)
    lengths = {(1, 0): 10_000.0, (2, 0): 2500.0, (2, 1): 400.0}
    for (a, b), length in lengths.items():
        counts.length[a, b], thresholds[a, b] = length, 1.0  # 1 below 0 and 2 below 1, yet 2 only as far below 0
    offsets = class_offsets(thresholds - thresholds.T, counts)
    missed = {(a, b): float(offsets[a] - offsets[b]) + 1.0 for a, b in lengths}
    forces = {pair: lengths[pair] ** 0.5 * missed[pair] for pair in lengths}  # sums of the gradient at each class
    assert forces[1, 0] + forces[2, 0] == pytest.approx(0) and forces[1, 0] == pytest.approx(forces[2, 1])
    assert missed[1, 0] != pytest.approx(0)


def test_a_class_gives_pixels_to_the_background_only_where_few_are_its_own():
    def found(own_of_ten: float, background: int) -> float:
        counts = OutlineCounts.none(3, torch.device("cpu"))
        a, b = 2, background
        counts.cores[a, b] = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
        counts.votes[a, b, 11] = 100 * torch.tensor([10 - own_of_ten, own_of_ten])  # log-ratio 0 to 0.5
        counts.votes[a, b, 12] = torch.tensor([0.0, 2000.0])
        counts.length[a, b] = 1000.0
        return float(outline_thresholds(counts)[a, b])

    assert found(3.5, background=0) == 0.5 and found(4.5, background=0) == 0
    assert found(4.5, background=1) == 0.5 and found(5.5, background=1) == 0


def test_classes_that_touch_and_look_alike_are_one_group():
    counts = OutlineCounts.none(4, torch.device("cpu"))
    assert look_groups(counts).tolist() == [0, 1, 2, 3]
    counts.length[1, 0] = counts.length[2, 1] = counts.length[3, 2] = 1000.0
    for a, b in ((1, 0), (2, 1), (3, 2)):
        counts.cores[a, b] = torch.tensor([[70.0, 30.0], [10.0, 90.0]])
    assert look_groups(counts).tolist() == [0, 1, 2, 3]
    counts.cores[3, 2, 1] = torch.tensor([30.0, 70.0])
    assert look_groups(counts).tolist() == [0, 1, 2, 2]
    counts.cores[2, 1, 1] = torch.tensor([30.0, 70.0])
    assert look_groups(counts).tolist() == [0, 1, 1, 1]  # 1 and 3 by way of 2
    counts.length[2, 1] = 10.0  # they hardly touch
    assert look_groups(counts).tolist() == [0, 1, 2, 2]
