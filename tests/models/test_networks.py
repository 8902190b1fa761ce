"""The networks of RAUNet, LWANet and CSS: layout of the published weights, sizes, and what their attention does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from jcas.models import MobileNetV2, ResNet, build_model
from jcas.models.ocrnet import ObjectContext
from jcas.models.raunet import AugmentedAttention

MOBILENET_TABLE = [(1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)]
"""Expansion, channels and repeats of the paper's Table 2."""


def mobilenet_layout() -> dict[str, tuple[int, ...]]:
    """Keys and shapes of torchvision's file, written down from the paper's table and independent of our classes."""
    shapes: dict[str, tuple[int, ...]] = {}

    def conv(key: str, *shape: int) -> None:
        shapes[f"{key}.weight"] = shape

    def batch_norm(key: str, width: int) -> None:
        shapes.update({f"{key}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")})
        shapes[f"{key}.num_batches_tracked"] = ()

    conv("features.0.0", 32, 3, 3, 3)
    batch_norm("features.0.1", 32)
    inputs, number = 32, 1
    for expansion, outputs, repeats in MOBILENET_TABLE:
        for _ in range(repeats):
            key, wide, at = f"features.{number}.conv", inputs * expansion, 0
            if expansion != 1:
                conv(f"{key}.0.0", wide, inputs, 1, 1)
                batch_norm(f"{key}.0.1", wide)
                at = 1
            conv(f"{key}.{at}.0", wide, 1, 3, 3)
            batch_norm(f"{key}.{at}.1", wide)
            conv(f"{key}.{at + 1}", outputs, wide, 1, 1)
            batch_norm(f"{key}.{at + 2}", outputs)
            inputs, number = outputs, number + 1
    conv("features.18.0", 1280, 320, 1, 1)
    batch_norm("features.18.1", 1280)
    shapes["classifier.1.weight"], shapes["classifier.1.bias"] = (1000, 1280), (1000,)
    return shapes


def test_mobilenet_has_torchvisions_names_and_its_published_file_fits(tmp_path: Path) -> None:
    layout = mobilenet_layout()
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    # torchvision publishes 3,504,872 parameters
    assert sum(torch.Size(s).numel() for key, s in layout.items() if not key.endswith(statistics)) == 3_504_872
    expected = {key: s for key, s in layout.items() if not key.startswith(("features.18.", "classifier."))}
    assert {key: tuple(value.shape) for key, value in MobileNetV2().state_dict().items()} == expected
    generator = torch.Generator().manual_seed(0)
    weights = {
        key: torch.zeros((), dtype=torch.int64) if key.endswith("tracked") else torch.rand(shape, generator=generator)
        for key, shape in layout.items()
    }
    torch.save(weights, tmp_path / "mobilenet.pth")
    model = build_model("lwanet", num_classes=2, channels=1, pretrained=str(tmp_path / "mobilenet.pth"))
    loaded = model.encoder.state_dict()
    assert model.pretrained and all(torch.equal(loaded[key], weights[key]) for key in loaded)


def test_maps_of_mobilenet_have_the_papers_strides_and_channels() -> None:
    maps = MobileNetV2().eval().stages(torch.rand(1, 3, 64, 96))
    assert [tuple(m.shape[1:]) for m in maps] == [(24, 16, 24), (32, 8, 12), (96, 4, 6), (320, 2, 3)]


def test_undilated_resnet_has_the_same_weights_on_coarser_grids() -> None:
    torch.manual_seed(0)
    strided = ResNet("resnet18", dilated=False).eval()
    dilated = ResNet("resnet18").eval()
    dilated.load_state_dict(strided.state_dict())
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        fine, coarse = dilated.stages(image), strided.stages(image)
    assert [m.shape[-1] for m in coarse] == [16, 8, 4, 2] and [m.shape[-1] for m in fine] == [16, 8, 8, 8]
    assert torch.equal(fine[1], coarse[1])


@pytest.mark.parametrize(
    ("name", "parameters"),
    # LWANet's paper states 2.06 M. RAUNet: ResNet-34's 21.28 M and, by hand, 0.86 M of decoder and attention.
    [("raunet", 22.14e6), ("lwanet", 2.06e6)],
)
def test_networks_are_as_large_as_published(name: str, parameters: float) -> None:
    model = build_model(name, num_classes=4, channels=3)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(parameters, rel=0.01)


def test_logits_of_lwanet_are_cut_at_zero_only_as_published() -> None:
    torch.manual_seed(0)
    image = torch.rand(1, 3, 64, 64)
    assert build_model("lwanet", num_classes=4, channels=3)(image).logits.min() < 0
    published = build_model("lwanet", num_classes=4, channels=3, final_relu=True)
    assert published(image).logits.min() == 0
    with pytest.raises(ValueError, match="encoder 'tiny' has no option final_relu"):
        build_model("tiny", num_classes=4, channels=3, final_relu=True)


def test_raunet_pads_and_cuts_back() -> None:
    torch.manual_seed(0)
    model = build_model("raunet", num_classes=2, channels=1).eval()
    image = torch.rand(1, 1, 64, 96)
    cropped = image[..., :50, :70]
    repeated = torch.nn.functional.pad(cropped, (0, 26, 0, 14), mode="replicate")
    with torch.no_grad():
        assert torch.allclose(model(cropped).logits, model(repeated).logits[..., :50, :70], atol=1e-5)


def test_attention_of_raunet_adds_encoder_channels_by_weights_that_sum_to_one() -> None:
    torch.manual_seed(0)
    attention = AugmentedAttention(4).eval()
    high, low = torch.rand(2, 4, 9, 9), torch.randn(2, 4, 9, 9)
    added = attention(high, low) - high
    projected = attention.project(low)
    seen = projected > 0
    weights = (added / projected).where(seen, 0).sum((2, 3)) / seen.sum((2, 3))
    assert torch.allclose(weights.sum(1), torch.ones(2), atol=1e-4)


def test_class_centres_of_ocrnet_are_means_weighted_over_the_pixels() -> None:
    torch.manual_seed(0)
    context = ObjectContext().eval()
    seen: list[Tensor] = []
    context.value.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    pixels = torch.rand(1, 512, 2, 2)
    logits = torch.zeros(1, 2, 2, 2)
    logits[0, 1, 0, 0] = 50  # class 1 lies in the first pixel alone, class 0 everywhere
    context(pixels, logits)
    assert torch.allclose(seen[0][0, :, 0], pixels[0].mean((1, 2)), atol=1e-6)
    assert torch.allclose(seen[0][0, :, 1], pixels[0, :, 0, 0], atol=1e-6)


def test_ocrnet_takes_any_encoder_by_name() -> None:
    model = build_model("ocrnet:resnet18", num_classes=3, channels=1)
    output = model(torch.rand(1, 1, 32, 48))
    assert output.logits.shape == (1, 3, 4, 6)
    assert output.auxiliary is not None and output.auxiliary.logits.shape == (1, 3, 4, 6)
    assert model.get_parameter("classifier.weight").shape == (3, 512, 1, 1)
    with pytest.raises(ValueError, match="unknown encoder 'ocrnet:unet'"):
        build_model("ocrnet:unet", num_classes=3, channels=1)


@pytest.mark.parametrize(
    ("name", "stride", "parameters"),
    # RAUNet by hand: 22.14 M / 16, as all layers but the first and last shrink on both sides.
    [("raunet:tiny", 1, 1.39e6), ("lwanet:tiny", 4, 0.54e6), ("ocrnet:tiny", 4, 0.63e6)],
)
def test_small_networks_read_the_grids_of_the_large_ones_with_fewer_channels(
    name: str, stride: int, parameters: float
) -> None:
    model = build_model(name, num_classes=4, channels=1).train()
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(parameters, rel=0.02)
    for batch, height, width in ((2, 96, 96), (1, 37, 50)):
        logits = model(torch.rand(batch, 1, height, width)).logits
        assert logits.shape == (batch, 4, -(-height // stride), -(-width // stride))


@pytest.mark.parametrize("name", ["raunet", "lwanet"])
def test_a_small_network_has_the_layers_of_the_large_one(name: str) -> None:
    large, small = (build_model(n, num_classes=4, channels=3).state_dict() for n in (name, f"{name}:tiny"))
    assert large.keys() == small.keys()
    assert all(
        value.ndim == small[key].ndim and value.shape[2:] == small[key].shape[2:] for key, value in large.items()
    )


@pytest.mark.parametrize("name", ["raunet", "lwanet", "ocrnet:tiny"])
def test_networks_without_pixel_features_say_so(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name.partition(':')[0]} has no pixel features, got feature_dim=8"):
        build_model(name, num_classes=3, channels=1, feature_dim=8)
