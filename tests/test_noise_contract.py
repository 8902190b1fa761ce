"""What holds for every noise in the registry."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from jcas.core import from_counts
from jcas.data.synthetic import synthesise
from jcas.noise import NOISES, Noise, make_noise, rng_for

SIZE = (64, 80)


def threshold(image: torch.Tensor) -> np.ndarray:
    return ((image.mean(0) - 0.6).clamp(min=0) * 9.999).long().numpy()


PARAMETERS = {
    "matrix": {"matrix": [[0.7, 0.1, 0.1, 0.1], [0, 1, 0, 0], [0.2, 0.2, 0.4, 0.2], [0, 0, 0.5, 0.5]]},
    "sfda": {"predictor": threshold},
}


@pytest.fixture(params=NOISES)
def noise(request) -> Noise:
    return make_noise(request.param, num_classes=4, parameters=PARAMETERS.get(request.param))


@pytest.fixture(scope="module")
def scenes() -> list[tuple[torch.Tensor, np.ndarray]]:
    made = [synthesise(i, size=SIZE, domain="target") for i in range(6)]
    scenes = [(torch.from_numpy(image).permute(2, 0, 1).float() / 255, mask) for image, mask in made]
    for _, mask in scenes:
        mask[20:30, 30:50] = 255
        mask.flags.writeable = False  # a noise that writes into its input fails loudly
    return scenes


def test_same_seed_gives_same_bytes_in_any_order_and_thread(noise, scenes):
    def run(i: int) -> bytes:
        image, mask = scenes[i]
        return noise(mask, rng_for(7, f"image-{i}"), image=image).tobytes()

    forward = [run(i) for i in range(len(scenes))]
    backward = [run(i) for i in reversed(range(len(scenes)))][::-1]
    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(run, range(len(scenes))))
    assert forward == backward == threaded


def test_shape_type_labels_and_ignore_are_kept(noise, scenes):
    for i, (image, mask) in enumerate(scenes):
        before = mask.copy()
        noisy = noise(mask, rng_for(0, str(i)), image=image)
        assert noisy.shape == mask.shape and noisy.dtype == np.uint8
        assert np.array_equal(noisy == 255, mask == 255)
        assert noisy[mask != 255].max() < 4
        assert np.array_equal(mask, before) and not np.shares_memory(noisy, mask)


def test_something_changes_but_not_everything(noise, scenes):
    for i, (image, mask) in enumerate(scenes):
        wrong = (noise(mask, rng_for(0, str(i)), image=image) != mask)[mask != 255].mean()
        assert 0.005 < wrong < 0.95


def test_true_transition_is_what_is_counted(noise, scenes):
    if noise.transition is None:
        return
    counts = np.zeros((4, 4), np.int64)
    for i, (image, mask) in enumerate(scenes):
        known = mask != 255
        np.add.at(counts, (mask[known], noise(mask, rng_for(1, str(i)), image=image)[known]), 1)
    # 5 standard deviations of a share, per row
    tolerance = torch.from_numpy(5 * 0.5 / np.sqrt(counts.sum(1, keepdims=True)))
    assert ((from_counts(torch.from_numpy(counts)) - noise.transition).abs() < tolerance).all()


@pytest.mark.parametrize("label", [0, 1, 3, 255])
def test_mask_of_one_label_is_handled(noise, label):
    mask = np.full(SIZE, label, np.uint8)
    noisy = noise(mask, rng_for(0, "a"), image=torch.rand(3, *SIZE))
    assert noisy.shape == SIZE and noisy.dtype == np.uint8
    assert np.array_equal(noisy == 255, mask == 255)


def test_lone_pixels_lines_and_corners_are_handled(noise):
    mask = np.zeros((24, 24), np.uint8)
    mask[0, 0] = 1
    mask[5, 3:20] = 2
    mask[8:20, 23] = 3
    noisy = noise(mask, rng_for(0, "a"), image=torch.rand(3, 24, 24))
    assert noisy.max() < 4


def test_parameters_survive_json(noise, request):
    name = next(key for key, kind in NOISES.items() if type(noise) is kind)
    parameters = json.loads(json.dumps(noise.parameters()))
    if name == "sfda":
        parameters["predictor"] = threshold
    assert make_noise(name, num_classes=4, parameters=parameters) == noise


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros((4, 4), np.int64), "int64"),
        (np.zeros((2, 4, 4), np.uint8), r"\(2, 4, 4\)"),
        (np.full((4, 4), 4, np.uint8), "label 4"),
    ],
)
def test_wrong_mask_is_named(noise, mask, message):
    with pytest.raises(ValueError, match=message):
        noise(mask, rng_for(0, "a"), image=torch.rand(3, 4, 4))


@pytest.mark.parametrize("num_classes", [1, 256])
def test_impossible_class_counts_are_named(num_classes):
    with pytest.raises(ValueError, match=f"num_classes .*{num_classes}"):
        make_noise("ellipse", num_classes=num_classes)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("elipse", {}, "'elipse', did you mean 'ellipse'"),
        ("symmetric", {"rates": 0.1}, "'rates', did you mean 'rate'"),
        ("symmetric", {"rate": "much"}, "rate: .*'much'"),
        ("symmetric", {"rate": 1.5}, "rate must .*1.5"),
        ("matrix", {}, "needs the parameter 'matrix'"),
        ("sfda", {"predictor": 3}, "predictor: .*3"),
    ],
)
def test_unknown_names_and_bad_values_are_named(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        make_noise(name, num_classes=4, parameters=parameters)


def test_generator_depends_on_seed_image_and_purpose():
    def draw(*arguments: object, **options: str) -> int:
        return int(rng_for(*arguments, **options).integers(2**62))  # type: ignore[arg-type]

    draws = [draw(0, "a"), draw(1, "a"), draw(0, "b"), draw(0, "a", purpose="choose")]
    assert len(set(draws)) == 4
    assert draws[0] == draw(0, "a")
