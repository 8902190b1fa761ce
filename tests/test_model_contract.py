"""Every model of the registry keeps the same promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from jcas.models import MODELS, SegmentationModel, build_model
from jcas.schema import Output

CLASSES, DIM = 3, 8
ALL = list(MODELS)
# networks of their own, for their own methods
WITHOUT_FEATURES = [name for name in ALL if name.partition(":")[0] in ("raunet", "lwanet", "ocrnet")]


def build(name: str, *, channels: int = 1, full: bool = True, seed: int = 0) -> SegmentationModel:
    torch.manual_seed(seed)
    return build_model(
        name,
        num_classes=CLASSES,
        channels=channels,
        feature_dim=DIM if full and name not in WITHOUT_FEATURES else 0,
        auxiliary=full,
        auxiliary_features=full and name not in WITHOUT_FEATURES,
    )


def images(batch: int, channels: int, height: int, width: int) -> Tensor:
    return torch.rand(batch, channels, height, width, generator=torch.Generator().manual_seed(1))


def tensors(output: Output) -> list[Tensor]:
    own = [tensor for tensor in (output.logits, output.features) if tensor is not None]
    return own + (tensors(output.auxiliary) if output.auxiliary is not None else [])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rgb_models() -> dict[str, SegmentationModel]:
    return {name: build(name, channels=3).eval() for name in ALL}


@pytest.mark.parametrize("name", ALL)
def test_output_has_logits_and_features_on_grids_that_cover_the_image(
    name: str, rgb_models: dict[str, SegmentationModel]
) -> None:
    with torch.no_grad():
        output = rgb_models[name](images(2, 3, 64, 80))
    assert output.auxiliary is not None or name.partition(":")[0] in ("raunet", "lwanet")
    for part in (output, output.auxiliary):
        if part is None:
            continue
        assert part.logits.shape[:2] == (2, CLASSES)
        if name not in WITHOUT_FEATURES:
            assert part.features is not None and part.features.shape[:2] == (2, DIM)
    for tensor in tensors(output):
        assert torch.isfinite(tensor).all()
        h, w = tensor.shape[-2:]
        assert 64 % h == 0 and 64 // h == 80 // w, "one stride for both sides"


@pytest.mark.parametrize("name", ALL)
def test_any_size_and_a_batch_of_one_work_in_train_mode(name: str) -> None:
    model = build(name).train()
    for height, width in ((32, 32), (37, 50)):
        output = model(images(1, 1, height, width))
        for tensor in tensors(output):
            assert torch.isfinite(tensor).all()
            stride = round(height / tensor.shape[-2])
            assert abs(tensor.shape[-2] - height / stride) < 1.5
            assert abs(tensor.shape[-1] - width / stride) < 1.5


@pytest.mark.parametrize("name", ALL)
def test_gradient_reaches_every_parameter(name: str) -> None:
    model = build(name, channels=3).train()
    loss = sum((tensor**2).mean() for tensor in tensors(model(images(2, 3, 40, 40))))
    assert isinstance(loss, Tensor)
    loss.backward()
    silent = [
        key
        for key, parameter in model.named_parameters()
        if parameter.grad is None or not torch.isfinite(parameter.grad).all() or not parameter.grad.any()
    ]
    assert silent == []


@pytest.mark.parametrize("name", ALL)
def test_evaluation_is_deterministic_and_independent_of_the_batch(
    name: str, rgb_models: dict[str, SegmentationModel]
) -> None:
    model, batch = rgb_models[name], images(2, 3, 32, 48)
    with torch.no_grad():
        first, again, alone = model(batch), model(batch), model(batch[:1])
    for a, b, c in zip(tensors(first), tensors(again), tensors(alone), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a[:1], c, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_same_seed_gives_the_same_weights(name: str, rgb_models: dict[str, SegmentationModel]) -> None:
    again = build(name, channels=3).state_dict()
    first = rgb_models[name].state_dict()
    assert first.keys() == again.keys()
    assert all(torch.equal(first[key], again[key]) for key in first)


@pytest.mark.parametrize("name", ALL)
def test_encoder_and_heads_share_no_parameter(name: str, rgb_models: dict[str, SegmentationModel]) -> None:
    named = dict(rgb_models[name].named_parameters(remove_duplicate=False))
    encoder = {id(parameter) for key, parameter in named.items() if key.startswith("encoder.")}
    heads = {id(parameter) for key, parameter in named.items() if not key.startswith("encoder.")}
    assert encoder and heads and encoder.isdisjoint(heads), "two learning rates for one parameter"


@pytest.mark.parametrize("name", ALL)
def test_heads_nobody_asked_for_do_not_exist(name: str) -> None:
    model = build(name, full=False)
    output = model(images(1, 1, 32, 32))
    assert output.features is None and output.auxiliary is None
    heads = [key for key, _ in model.named_parameters() if not key.startswith("encoder.")]
    assert heads and not [key for key in heads if "features" in key or "auxiliary" in key]


@pytest.mark.parametrize("name", ALL)
def test_wrong_images_are_refused_with_the_reason(name: str, rgb_models: dict[str, SegmentationModel]) -> None:
    with pytest.raises(ValueError, match=r"takes images \(B, 3, H, W\), got shape \(1, 1, 32, 32\)"):
        rgb_models[name](images(1, 1, 32, 32))
    with pytest.raises(ValueError, match="at least 32 x 32"):
        rgb_models[name](images(1, 3, 20, 32))


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("tiny", "unet", "ocrnet:tiny")])
def test_a_grey_image_equals_its_rgb_copy(name: str, rgb_models: dict[str, SegmentationModel]) -> None:
    grey_model = build(name).eval()
    grey = images(1, 1, 40, 40)
    with torch.no_grad():
        torch.testing.assert_close(grey_model(grey).logits, rgb_models[name](grey.expand(-1, 3, -1, -1)).logits)
