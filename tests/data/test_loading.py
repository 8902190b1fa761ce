"""Loaders: labels follow the image, and batches depend on nothing but seed, epoch and image."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from folders import blocks, numbered, save, write_folder

from jcas.data import EpochSampler, Preparation, epoch_order, evaluation_loader, read_folder, training_loader
from jcas.data.augmentation import Decode, Encode, RandomTurn, training_view
from jcas.schema import Batch

STRONG = Preparation(size=(24, 32), augmentation="strong")
ALL_TRAIN = (1.0, 0.0, 0.0)


def batches(loader, epoch: int = 0) -> list[Batch]:
    if isinstance(loader.sampler, EpochSampler):
        loader.sampler.set_epoch(epoch)
    return list(loader)


def assert_same(one: list[Batch], two: list[Batch]) -> None:
    assert [b.ids for b in one] == [b.ids for b in two]
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.image, b.image) and torch.equal(a.noisy, b.noisy)


@pytest.fixture
def ten(tmp_path):
    names = numbered(10)
    return read_folder(write_folder(tmp_path, names, clean=list(names), weights=list(names)), fractions=ALL_TRAIN)


def item() -> dict:
    """Image, labels and weight that can be computed from each other; all parts are wide enough to survive zooming."""
    labels = torch.zeros(1, 80, 120, dtype=torch.int64)
    labels[:, 8:40, 8:50], labels[:, 44:72, 60:112], labels[:, 44:56, 8:40] = 1, 2, 255
    return {
        "image": labels.remainder(5) / 4,  # 0, 1, 2 and 255 -> 0, .25, .5, 0
        "noisy": labels.byte(),
        "clean": (2 - labels).remainder(256).byte(),
        "weight": (labels + 1).remainder(256) / 8,  # 255 -> 0, as in the padding
        "id": "a",
    }


def test_batch_has_the_prepared_size_types_and_no_truth(ten):
    loader = training_loader(ten, preparation=Preparation(size=(8, 10)), batch_size=4, seed=0)
    seen = batches(loader)
    assert [b.image.shape for b in seen] == [(4, 1, 8, 10), (4, 1, 8, 10), (2, 1, 8, 10)] and len(loader) == 3
    batch = seen[0]
    assert (batch.image.dtype, batch.noisy.dtype, batch.weight.dtype) == (torch.float32, torch.int64, torch.float32)
    assert batch.noisy.shape == batch.weight.shape == (4, 8, 10)
    assert all(type(t) is torch.Tensor for t in (batch.image, batch.noisy, batch.weight))
    assert all(b.clean is None for b in seen)
    assert sorted(i for b in seen for i in b.ids) == list(numbered(10))


def test_without_preparation_the_files_come_through_unchanged(ten):
    for batch in batches(training_loader(ten, preparation=Preparation(), batch_size=1, seed=0)):
        record = next(r for r in ten.records if r.id == batch.ids[0])
        sample = ten.load(record, clean=False)
        assert torch.equal(batch.image[0], sample.image) and torch.equal(batch.noisy[0], sample.noisy)
        assert torch.equal(batch.weight[0], sample.weight)


def test_true_labels_train_only_on_request(ten, tmp_path):
    loader = training_loader(ten, preparation=Preparation(), batch_size=10, seed=0, use_clean_as_labels=True)
    (batch,) = batches(loader)
    truth = {r.id: ten.load(r, clean=True).clean for r in ten.records}
    assert all(torch.equal(mask, truth[name]) for mask, name in zip(batch.noisy, batch.ids, strict=True))
    assert batch.clean is None and batch.weight is None
    bare = read_folder(write_folder(tmp_path / "bare", numbered(2)), fractions=ALL_TRAIN)
    with pytest.raises(ValueError, match=r"no true labels of 'i00' in clean/ \(2 such images\)"):
        training_loader(bare, preparation=Preparation(), batch_size=1, seed=0, use_clean_as_labels=True)


def test_training_does_not_open_the_truth(ten):
    for record in ten.records:
        record.clean.write_bytes(b"broken")
    assert len(batches(training_loader(ten, preparation=Preparation(), batch_size=5, seed=0))) == 2
    with pytest.raises(ValueError, match="cannot be read as an image"):
        batches(evaluation_loader(ten, preparation=Preparation(), batch_size=5, split="train", clean=True))


@pytest.mark.parametrize("augmentation", ["flip", "strong"])
@pytest.mark.parametrize("crop", [None, (32, 48), (96, 150)])
def test_labels_and_weight_share_one_geometry_exactly(augmentation, crop):
    view = training_view(augmentation=augmentation, crop=crop)
    padded = 0
    for seed in range(12):
        view.set_random_state(seed=seed)
        seen = view(item())
        noisy = seen["noisy"]
        assert noisy.shape[1:] == (crop or (80, 120))
        assert set(noisy.unique().tolist()) <= {0, 1, 2, 255}
        assert torch.equal(seen["weight"], (noisy + 1).remainder(256) / 8)
        judged = noisy != 255
        assert torch.equal(seen["clean"][judged], 2 - noisy[judged])
        assert 0 <= seen["image"].min() and seen["image"].max() <= 1
        padded += int((noisy == 255).sum() > 600)
    if augmentation == "strong" and crop is None:
        assert padded > 0  # turned corners are ignored, not background


def test_flip_moves_image_and_labels_together():
    view = training_view(augmentation="flip", crop=None)
    flips = 0
    for seed in range(40):
        view.set_random_state(seed=seed)
        seen, plain = view(item()), Decode()(Encode()(item()))
        flipped = not torch.equal(seen["noisy"], plain["noisy"])
        flips += flipped
        for key in ("image", "noisy", "clean", "weight"):
            assert torch.equal(seen[key], plain[key].flip(2) if flipped else plain[key])
    assert 10 <= flips <= 30


def test_turn_moves_the_image_as_it_moves_the_labels():
    turn = RandomTurn(prob=1.0)
    moved, angles, zooms = 0, [], []
    for seed in range(20):
        turn.set_random_state(seed=seed)
        start = item()
        seen = Decode()(turn(Encode()(start)))
        labels = seen["noisy"]
        expected = labels.where(labels != 255, 0) / 4
        # Bilinear pixels mix across edges (and across the frame): compare where all neighbours have one label.
        neighbours = labels[0].unfold(0, 3, 1).unfold(1, 3, 1).flatten(2)
        interior = (neighbours == neighbours[:, :, :1]).all(2)
        assert interior.float().mean() > 0.8
        assert (seen["image"] - expected)[0, 1:-1, 1:-1][interior].abs().max() < 1e-4
        moved += int((labels != start["noisy"]).sum() > 100)
        angles.append(turn.angle)
        zooms.append(turn.zoom)
    assert moved >= 15
    assert max(map(abs, angles)) <= np.radians(15) and min(angles) < 0 < max(angles)
    assert 0.8 <= min(zooms) < 1 < max(zooms) <= 1.25


def test_zoom_above_one_magnifies():
    labels = torch.zeros(1, 64, 64, dtype=torch.uint8)
    labels[:, 24:40, 24:40] = 1
    turn = RandomTurn(prob=1.0)
    for seed in range(10):
        turn.set_random_state(seed=seed)
        seen = Decode()(turn(Encode()({"image": labels.float(), "noisy": labels, "id": "a"})))
        area = int((seen["noisy"] == 1).sum())
        assert area == pytest.approx(256 * turn.zoom**2, rel=0.12)


def test_strong_intensity_changes_the_image_only():
    view = training_view(augmentation="strong", crop=None)
    start = {"image": torch.full((3, 20, 20), 0.5), "noisy": torch.ones(1, 20, 20, dtype=torch.uint8), "id": "a"}
    changed = 0
    for seed in range(10):
        view.set_random_state(seed=seed)
        seen = view(start)
        assert set(seen["noisy"].unique().tolist()) <= {1, 255}
        changed += bool((seen["image"][:, 8:12, 8:12] != 0.5).any())
    assert changed >= 6
    assert torch.equal(start["image"], torch.full((3, 20, 20), 0.5))  # a cached item is never written to


def test_small_image_is_padded_with_ignored_pixels(ten):
    loader = training_loader(ten, preparation=Preparation(crop=(20, 30)), batch_size=10, seed=0)
    (batch,) = batches(loader)
    assert batch.noisy.shape == (10, 20, 30)
    inside = batch.noisy != 255
    assert inside.flatten(1).sum(1).tolist() == [12 * 16] * 10
    assert batch.weight[~inside].abs().max() == 0 and batch.weight[inside].min() > 0


def test_crop_takes_different_windows_of_the_image(ten):
    loader = training_loader(ten, preparation=Preparation(crop=(5, 7)), batch_size=10, seed=0)
    windows = set()
    for epoch in range(3):
        (batch,) = batches(loader, epoch)
        windows.add(batch.noisy.numpy().tobytes())
        for noisy, name in zip(batch.noisy, batch.ids, strict=True):
            whole = torch.from_numpy(blocks(12, 16, turn=int(name[1:]))).long()
            patches = whole.unfold(0, 5, 1).unfold(1, 7, 1).reshape(-1, 5, 7)
            assert (patches == noisy).flatten(1).all(1).any()
    assert len(windows) == 3


def test_size_resizes_labels_to_the_nearest_pixel(tmp_path):
    mask = blocks(24, 36)
    save(tmp_path / "images" / "a.png", np.kron(mask, np.ones((2, 2), np.uint8)) * 60)
    save(tmp_path / "masks" / "a.png", np.kron(mask, np.ones((2, 2), np.uint8)))
    dataset = read_folder(tmp_path, fractions=ALL_TRAIN)
    (batch,) = batches(training_loader(dataset, preparation=Preparation(size=(24, 36)), batch_size=1, seed=0))
    np.testing.assert_array_equal(batch.noisy[0], mask)
    inner = batch.image[0, 0, 14:, 20:]  # inside one block antialiasing has nothing to mix
    assert torch.allclose(inner, torch.full_like(inner, 120 / 255), atol=1e-6)


def test_order_is_a_function_of_seed_and_epoch():
    assert epoch_order(50, seed=3, epoch=4) == epoch_order(50, seed=3, epoch=4)
    orders = {tuple(epoch_order(50, seed=s, epoch=e)) for s in range(3) for e in range(3)}
    assert len(orders) == 9 and all(sorted(order) == list(range(50)) for order in orders)


def test_workers_do_not_change_the_batches(ten):
    def run(workers: int, cache: bool | float) -> list[Batch]:
        loader = training_loader(ten, preparation=STRONG, batch_size=3, seed=5, workers=workers, cache=cache)
        return [batch for epoch in (0, 1) for batch in batches(loader, epoch)]

    plain = run(0, False)
    assert_same(plain, run(2, False))
    assert_same(plain, run(2, True))
    assert_same(plain, run(0, 0.5))


def test_resumed_loader_equals_the_straight_run(ten):
    def loader():
        return training_loader(ten, preparation=STRONG, batch_size=4, seed=7)

    straight = loader()
    epochs = [batches(straight, epoch) for epoch in range(4)]
    assert_same(batches(loader(), 3), epochs[3])
    assert_same(batches(straight, 1), epochs[1])
    for earlier, later in pairwise(epochs):
        assert [b.ids for b in earlier] != [b.ids for b in later]


def test_view_of_an_image_does_not_depend_on_other_images(ten):
    few = read_folder(ten.root, fractions=ALL_TRAIN)
    few = type(few)(**{**vars(few), "records": few.records[4:7]})
    views = [
        {n: i for b in batches(training_loader(d, preparation=STRONG, batch_size=2, seed=1), 2)
         for n, i in zip(b.ids, b.image, strict=True)}
        for d in (ten, few)
    ]  # fmt: skip
    assert len(views[1]) == 3
    assert all(torch.equal(views[0][name], image) for name, image in views[1].items())
    other_seed = batches(training_loader(few, preparation=STRONG, batch_size=2, seed=2), 2)
    changed = [not torch.equal(views[1][n], i) for b in other_seed for n, i in zip(b.ids, b.image, strict=True)]
    assert any(changed)


def test_loader_leaves_the_global_generators_alone(ten):
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    batches(training_loader(ten, preparation=STRONG, batch_size=4, seed=0, cache=True))
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_the_global_batches_of_one(ten, world_size):
    per_process = 2
    whole = training_loader(ten, preparation=STRONG, batch_size=per_process * world_size, seed=0)
    shards = [
        batches(
            training_loader(ten, preparation=STRONG, batch_size=per_process, seed=0, rank=rank, world_size=world_size),
            epoch=1,
        )
        for rank in range(world_size)
    ]
    expected = batches(whole, epoch=1)
    assert {len(shard) for shard in shards} == {len(expected)}
    for number, batch in enumerate(expected[:-1]):  # the last one is filled up, see below
        for rank, shard in enumerate(shards):
            assert shard[number].ids == batch.ids[rank::world_size]
            assert torch.equal(shard[number].image, batch.image[rank::world_size])


@pytest.mark.parametrize(("count", "world_size"), [(10, 4), (11, 2), (3, 4), (9, 3)])
def test_last_batch_is_filled_so_that_processes_stay_in_step(count, world_size):
    shards = [[i for _, i in EpochSampler(count, seed=0, rank=r, world_size=world_size)] for r in range(world_size)]
    assert {len(shard) for shard in shards} == {-(-count // world_size)}
    assert len(EpochSampler(count, seed=0, world_size=world_size)) == len(shards[0])
    dealt = [shards[k % world_size][k // world_size] for k in range(len(shards[0]) * world_size)]
    order = epoch_order(count, seed=0, epoch=0)
    assert dealt[:count] == order and dealt[count:] == order[: len(dealt) - count]


def test_a_process_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="cannot shard: rank=2, world_size=2"):
        EpochSampler(3, seed=0, rank=2, world_size=2)


def test_mixed_sizes_need_size_or_crop_in_training(tmp_path):
    sizes = {"a": (12, 16), "b": (12, 16), "c": (20, 16), "d": (12, 16)}
    dataset = read_folder(write_folder(tmp_path, sizes), fractions=ALL_TRAIN)
    with pytest.raises(ValueError, match=r"differ in size \(a: 12 x 16, c: 20 x 16\); set --size or --crop"):
        training_loader(dataset, preparation=Preparation(), batch_size=2, seed=0)
    for preparation in (Preparation(size=(8, 8)), Preparation(crop=(8, 8))):
        (batch,) = batches(training_loader(dataset, preparation=preparation, batch_size=4, seed=0))
        assert batch.image.shape == (4, 1, 8, 8)


def test_evaluation_keeps_order_and_never_mixes_sizes(tmp_path):
    sizes = {"a": (12, 16), "b": (12, 16), "c": (12, 16), "d": (20, 16), "e": (12, 16)}
    dataset = read_folder(write_folder(tmp_path, sizes, clean=list(sizes)), fractions=(0.0, 0.0, 1.0))
    strong = Preparation(crop=(4, 4), augmentation="strong")
    for workers in (0, 2):
        loader = evaluation_loader(dataset, preparation=strong, batch_size=2, split="test", clean=True, workers=workers)
        seen = batches(loader)
        assert [b.ids for b in seen] == [("a", "b"), ("c",), ("d",), ("e",)] and len(loader) == 4
        for batch in seen:
            for k, name in enumerate(batch.ids):
                sample = dataset.load(next(r for r in dataset.records if r.id == name), clean=True)
                assert torch.equal(batch.image[k], sample.image) and torch.equal(batch.clean[k], sample.clean)
    resized = batches(
        evaluation_loader(dataset, preparation=STRONG, batch_size=5, split="test", clean=False, cache=True)
    )
    assert [b.image.shape for b in resized] == [(5, 1, 24, 32)] and resized[0].clean is None


def test_no_more_images_stay_in_memory_than_a_quarter_of_it_holds(ten, monkeypatch, capsys):
    def run() -> list[Batch]:
        loader = training_loader(ten, preparation=STRONG, batch_size=3, seed=5, cache=True, rank=1, world_size=2)
        return batches(loader)

    whole = run()
    assert capsys.readouterr().err == ""
    loader = training_loader(ten, preparation=STRONG, batch_size=3, seed=5, cache=True)
    item = sum(value.nbytes for value in loader.dataset.cached[0].values() if isinstance(value, torch.Tensor))
    monkeypatch.setattr("jcas.data.loading._machine_memory", lambda: 4 * 2 * 3.5 * item)
    for one, other in zip(run(), whole, strict=True):
        assert torch.equal(one.image, other.image) and torch.equal(one.noisy, other.noisy)
    assert capsys.readouterr().err == "jcas: 3 of 10 images stay in memory, others are read anew\n"


def test_cached_images_are_not_read_again(ten):
    loader = training_loader(ten, preparation=STRONG, batch_size=5, seed=0, cache=True)
    first = batches(loader, 0)
    for record in ten.records:
        record.image.unlink()
    assert_same(batches(loader, 0), first)


def test_ignored_labels_survive_resizing_and_caching(tmp_path):
    save(tmp_path / "images" / "a.png", np.zeros((8, 8), np.uint8))
    save(tmp_path / "masks" / "a.png", np.kron(np.array([[0, 9], [1, 255]], np.uint8), np.ones((4, 4), np.uint8)))
    (tmp_path / "dataset.yaml").write_text("classes: [a, b]\nignore: 9\n")
    dataset = read_folder(tmp_path, fractions=ALL_TRAIN)
    loader = training_loader(dataset, preparation=Preparation(size=(2, 2)), batch_size=1, seed=0, cache=True)
    assert batches(loader)[0].noisy.tolist() == [[[0, 255], [1, 255]]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (0, 4)}, r"size must be \(rows, columns\) of at least 1, got \(0, 4\)"),
        ({"crop": (4,)}, r"crop must be \(rows, columns\)"),
        ({"augmentation": "wild"}, "unknown augmentation 'wild', choose one of none, flip, strong"),
    ],
)
def test_bad_preparation_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Preparation(**arguments)


def test_bad_loader_arguments_are_refused(ten):
    with pytest.raises(ValueError, match="has no val images"):
        evaluation_loader(ten, preparation=STRONG, batch_size=1, split="val", clean=True)
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        training_loader(ten, preparation=STRONG, batch_size=1, seed=0, split="dev")
    with pytest.raises(ValueError, match=r"cache must be a share of the images, 0\.\.1, got 2"):
        training_loader(ten, preparation=STRONG, batch_size=1, seed=0, cache=2)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        evaluation_loader(ten, preparation=STRONG, batch_size=0, split="train", clean=True)


def test_large_images_are_evaluated_in_smaller_batches(ten, monkeypatch):
    height, width = ten.size(ten.split("train")[0])
    monkeypatch.setattr("jcas.data.loading._MOST_PIXELS", 3 * height * width)
    loader = evaluation_loader(ten, preparation=Preparation(), batch_size=4, split="train", clean=False)
    assert [len(batch.ids) for batch in loader] == [3, 3, 3, 1]
