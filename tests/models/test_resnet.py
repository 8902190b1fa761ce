"""The dilated ResNets: torchvision's layout, the released variant, and files that do not fit."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from jcas.models import ResNet, build_model
from jcas.models.resnet import BLOCKS, IMAGENET_URLS

PARAMETERS = {"resnet18": 11_176_512, "resnet34": 21_284_672, "resnet50": 23_508_032, "resnet101": 42_500_160}
"""torchvision's published counts (11,689,512 ...) without the 1000-class classifier."""


def torchvision_layout(name: str) -> dict[str, tuple[int, ...]]:
    """Keys and shapes of torchvision's file, written down from the paper's Table 1 and independent of our classes."""
    deep = name in ("resnet50", "resnet101")
    grow = 4 if deep else 1
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)}

    def batch_norm(key: str, width: int) -> None:
        shapes.update({f"{key}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")})
        shapes[f"{key}.num_batches_tracked"] = ()

    batch_norm("bn1", 64)
    inputs = 64
    for layer, depth in enumerate(BLOCKS[name], start=1):
        width = 32 * 2**layer
        for index in range(depth):
            block = f"layer{layer}.{index}"
            if deep:
                convs = [(width, inputs, 1), (width, width, 3), (4 * width, width, 1)]
            else:
                convs = [(width, inputs, 3), (width, width, 3)]
            for number, (outputs, given, kernel) in enumerate(convs, start=1):
                shapes[f"{block}.conv{number}.weight"] = (outputs, given, kernel, kernel)
                batch_norm(f"{block}.bn{number}", outputs)
            if index == 0 and inputs != grow * width:
                shapes[f"{block}.downsample.0.weight"] = (grow * width, inputs, 1, 1)
                batch_norm(f"{block}.downsample.1", grow * width)
            inputs = grow * width
    shapes["fc.weight"], shapes["fc.bias"] = (1000, inputs), (1000,)
    return shapes


def random_file(name: str, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        key: torch.zeros((), dtype=torch.int64)
        if key.endswith("num_batches_tracked")
        else torch.rand(shape, generator=generator) * 0.1
        for key, shape in torchvision_layout(name).items()
    }


@pytest.mark.parametrize("name", BLOCKS)
def test_resnet_has_the_names_and_shapes_of_torchvision(name: str) -> None:
    encoder = ResNet(name)
    expected = {key: shape for key, shape in torchvision_layout(name).items() if not key.startswith("fc.")}
    assert {key: tuple(value.shape) for key, value in encoder.state_dict().items()} == expected
    assert sum(parameter.numel() for parameter in encoder.parameters()) == PARAMETERS[name]
    assert IMAGENET_URLS[name].startswith(f"https://download.pytorch.org/models/{name}-")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_pretrained_file_fills_the_encoder_and_its_classifier_is_ignored(tmp_path: Path, suffix: str) -> None:
    weights, path = random_file("resnet18"), tmp_path / f"imagenet{suffix}"
    if suffix == ".pth":
        torch.save(weights, path)
    else:
        save_file(weights, path)
    model = build_model("resnet18", num_classes=2, channels=1, pretrained=str(path))
    loaded = model.encoder.state_dict()
    assert all(torch.equal(loaded[key], weights[key]) for key in loaded)


def test_prefixes_of_wrappers_are_removed(tmp_path: Path) -> None:
    weights = random_file("resnet18")
    torch.save({"state_dict": {f"Scale.{key}": value for key, value in weights.items()}}, tmp_path / "w.pth")
    encoder = ResNet("resnet18")
    encoder.load_pretrained(str(tmp_path / "w.pth"))
    assert torch.equal(encoder.conv1.weight, weights["conv1.weight"])


def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    path, weights = tmp_path / "w.pth", random_file("resnet18")
    short = {key: value for key, value in weights.items() if key != "layer4.1.conv2.weight"}
    cases = [
        (short, "1 missing: layer4.1.conv2.weight"),
        ({**weights, "extra.weight": torch.zeros(1)}, "1 unexpected: extra.weight"),
        ({**weights, "conv1.weight": torch.zeros(64, 1, 7, 7)}, "1 of another shape: conv1.weight"),
    ]
    for state, message in cases:
        torch.save(state, path)
        with pytest.raises(ValueError, match=message):
            ResNet("resnet18").load_pretrained(str(path))
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"cannot read pretrained weights .*w\.pth"):
        ResNet("resnet18").load_pretrained(str(path))
    path.with_suffix(".safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"cannot read pretrained weights .*w\.safetensors"):
        ResNet("resnet18").load_pretrained(str(path.with_suffix(".safetensors")))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ResNet("resnet18").load_pretrained(str(tmp_path / "nowhere.pth"))


def test_without_a_network_the_address_and_the_way_out_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))  # nothing was fetched before
    with socket.socket() as unheard:  # bound, but nobody listens
        unheard.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{unheard.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(ValueError, match="cannot fetch pretrained weights") as refused:
            ResNet("resnet18").load_pretrained(True)
    assert IMAGENET_URLS["resnet18"] in str(refused.value)
    assert str(refused.value).endswith("give a file with --pretrained FILE")


def test_pretrained_refuses_images_of_four_channels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes grey or RGB images, got channels=4"):
        build_model("resnet18", num_classes=2, channels=4, pretrained=str(tmp_path / "w.pth"))


def test_released_grid_of_256_by_320_is_33_by_41() -> None:
    image = torch.rand(1, 3, 256, 320)
    with torch.no_grad():
        released = ResNet("resnet18", released=True).eval()(image).main
        ours = ResNet("resnet18").eval()(image).main
    assert released.shape[-2:] == (33, 41)
    assert ours.shape[-2:] == (32, 40)


def test_released_bottleneck_strides_on_the_1x1() -> None:
    released, ours = ResNet("resnet50", released=True), ResNet("resnet50")
    assert released.layer2[0].conv1.stride == (2, 2) and released.layer2[0].conv2.stride == (1, 1)
    assert ours.layer2[0].conv1.stride == (1, 1) and ours.layer2[0].conv2.stride == (2, 2)
    for encoder in (released, ours):
        for layer, dilation in ((encoder.layer3, 2), (encoder.layer4, 4)):
            assert {block.conv2.dilation for block in layer} == {(dilation, dilation)}
            assert {block.conv2.stride for block in layer} == {(1, 1)}


def test_released_input_is_bgr_minus_128_over_128() -> None:
    model = build_model("resnet18", num_classes=2, channels=3, released_encoder=True)
    pixel = torch.tensor([255.0, 128.0, 0.0]).view(1, 3, 1, 1)  # R, G, B of 0..255
    normalised = model.normalise((pixel / 255).expand(1, 3, 32, 32))
    torch.testing.assert_close(normalised[0, :, 0, 0], torch.tensor([-1.0, 0.0, 127 / 128]), atol=1e-6, rtol=0)


def test_frozen_affine_keeps_scale_and_shift_but_moves_statistics() -> None:
    model = build_model("resnet18", num_classes=2, channels=1, freeze_bn_affine=True).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    (model(torch.rand(2, 1, 32, 32)).logits ** 2).mean().backward()
    optimiser.step()
    after = model.state_dict()
    assert torch.equal(before["encoder.bn1.weight"], after["encoder.bn1.weight"])
    assert torch.equal(before["encoder.layer4.1.bn2.bias"], after["encoder.layer4.1.bn2.bias"])
    assert not torch.equal(before["encoder.bn1.running_mean"], after["encoder.bn1.running_mean"])
    assert not torch.equal(before["encoder.conv1.weight"], after["encoder.conv1.weight"])
