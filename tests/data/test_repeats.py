"""Repeat-factor sampling: the factors, the order they give, and that processes still share it."""

from collections import Counter

import pytest
from folders import blocks, numbered, save, write_folder

from jcas.data import EpochSampler, Preparation, epoch_order, read_folder, training_loader
from jcas.data.loading import repeat_factors


def test_factors_are_those_of_the_rarest_class_by_hand():
    # 10 images: class 0 in all, class 1 in three, class 2 in one; threshold .4
    images = [frozenset({0})] * 7 + [frozenset({0, 1})] * 2 + [frozenset({0, 1, 2})]
    # f = 1, .3, .1: factors 1, sqrt(.4 / .3) = 1.1547, sqrt(.4 / .1) = 2
    found = repeat_factors(images, threshold=0.4)
    assert found == pytest.approx([1.0] * 7 + [1.1547005] * 2 + [2.0])
    assert repeat_factors(images, threshold=0.1) == [1.0] * 10
    assert repeat_factors([frozenset(), frozenset({0})], threshold=0.15) == [1.0, 1.0], "an image of ignored pixels"


def test_images_come_in_proportion_to_their_factors():
    factors = [1.0, 1.0, 1.5, 3.0]
    seen = Counter(i for epoch in range(2000) for i in epoch_order(4, seed=0, epoch=epoch, repeats=factors))
    total = sum(factors)
    assert sum(seen.values()) == 8000, "an epoch is as long as without repeats"
    for image, factor in enumerate(factors):
        assert seen[image] / 8000 == pytest.approx(factor / total, abs=0.03)


def test_factors_of_one_give_every_image_once_and_the_order_is_repeatable():
    assert sorted(epoch_order(9, seed=3, epoch=2, repeats=[1.0] * 9)) == list(range(9))
    one, two, other = (epoch_order(9, seed=3, epoch=e, repeats=[1.7] * 9) for e in (2, 2, 3))
    assert one == two != other


def test_processes_share_the_repeated_order():
    factors = [1.0, 2.0, 1.0, 2.5, 1.0, 1.0]

    def indices(rank: int, world_size: int) -> list[int]:
        sampler = EpochSampler(6, seed=0, rank=rank, world_size=world_size, repeats=factors)
        sampler.set_epoch(4)
        return [index for _, index in sampler]

    alone, first, second = indices(0, 1), indices(0, 2), indices(1, 2)
    assert [index for pair in zip(first, second, strict=True) for index in pair] == alone


@pytest.mark.parametrize("cache", [True, False])
def test_loader_repeats_images_of_classes_that_few_labels_show(tmp_path, cache):
    root = write_folder(tmp_path, numbered(10))
    for name in numbered(10):
        mask = blocks(12, 16)
        mask[mask == 2] = 0 if name != "i00" else 2
        save(root / "masks" / f"{name}.png", mask)
    dataset = read_folder(root, fractions=(1.0, 0.0, 0.0))
    loader = training_loader(
        dataset, preparation=Preparation(), batch_size=2, seed=0, cache=cache, repeat_threshold=0.9
    )
    assert loader.sampler.repeats == pytest.approx([3.0] + [1.0] * 9)  # sqrt(.9 / .1)
    assert len(loader) == 5
