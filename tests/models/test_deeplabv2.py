"""The heads: all dilations by default, the released variant by switch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from jcas.models import build_model
from jcas.models.deeplabv2 import DeepLabV2, DilatedSum


def test_classifier_is_the_sum_of_four_dilated_convolutions() -> None:
    torch.manual_seed(0)
    head = DilatedSum(4, 3, dilations=(6, 12, 18, 24)).double()
    for branch in head.branches:
        torch.nn.init.normal_(branch.bias)
    x = torch.rand(2, 4, 20, 30, dtype=torch.float64)
    expected = sum(
        functional.conv2d(x, branch.weight, branch.bias, padding=dilation, dilation=dilation)
        for branch, dilation in zip(head.branches, (6, 12, 18, 24), strict=True)
    )
    torch.testing.assert_close(head(x), expected)


def test_heads_start_from_small_normal_weights_and_no_bias() -> None:
    torch.manual_seed(0)
    head = DilatedSum(256, 16, dilations=(6, 12))
    for branch in head.branches:
        assert abs(float(branch.weight.detach().std()) - 0.01) < 2e-4
        assert not branch.bias.any()


@pytest.mark.parametrize(("released", "dilations"), [(False, [6, 12, 18, 24]), (True, [6, 12])])
def test_released_dilations_drop_the_last_two_in_all_heads(released: bool, dilations: list[int]) -> None:
    model = build_model(
        "resnet18",
        num_classes=2,
        channels=3,
        feature_dim=8,
        auxiliary_features=True,
        head="released",
        released_dilations=released,
    )
    assert isinstance(model, DeepLabV2)
    heads = (model.classifier, model.features, model.auxiliary_classifier, model.auxiliary_features)
    for head in heads:
        assert isinstance(head, DilatedSum)
        assert [branch.dilation[0] for branch in head.branches] == dilations


def test_released_network_has_the_published_heads() -> None:
    with torch.device("meta"):  # shapes only: 90 M parameters need not exist
        model = build_model(
            "resnet101",
            num_classes=4,
            channels=3,
            feature_dim=256,
            auxiliary_features=True,
            head="released",
            released_dilations=True,
        )
    shapes = {key: tuple(value.shape) for key, value in model.named_parameters()}
    assert shapes["classifier.branches.0.weight"] == (4, 2048, 3, 3)
    assert shapes["auxiliary_classifier.branches.0.weight"] == (4, 1024, 3, 3)
    assert shapes["features.branches.0.weight"] == (256, 2048, 3, 3)
    assert shapes["auxiliary_features.branches.0.weight"] == (128, 1024, 3, 3)


def test_light_features_start_far_from_uniform() -> None:
    torch.manual_seed(0)
    model = build_model("tiny", num_classes=2, channels=1, feature_dim=32)
    features = model(torch.rand(1, 1, 64, 64)).features
    assert features is not None
    unit = functional.normalize(features.relu().flatten(2)[0], dim=0)
    assert float((unit.T @ unit).mean().detach()) < 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "resnet110"}, r"unknown encoder 'resnet110', did you mean 'resnet101'\?"),
        ({"encoder": "tinny"}, r"did you mean 'tiny'\?"),
        ({"head": "heavy"}, "head is 'light' or 'released', got 'heavy'"),
        ({"encoder": "unet", "head": "heavy"}, "got 'heavy'"),
        ({"encoder": "unet", "pretrained": True}, "unet has no pretrained weights"),
        ({"pretrained": True}, "tiny has no pretrained weights"),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"channels": 0}, "channels must be at least 1, got 0"),
        ({"feature_dim": -1}, "feature_dim must be at least 0, got -1"),
        ({"auxiliary_features": True}, "auxiliary_features needs"),
        ({"encoder": "unet", "auxiliary_features": True}, "auxiliary_features needs"),
        ({"freeze_bn_affine": True}, "encoder 'tiny' has no option freeze_bn_affine"),
        ({"encoder": "resnet18", "output_stride": 16}, "encoder 'resnet18' has no option output_stride"),
        ({"encoder": "lite0", "released_encoder": True}, "encoder 'lite0' has no option released_encoder"),
        ({"encoder": "timm:resnet10t", "pretrained": "w.pth"}, "fetches its own weights, got pretrained='w.pth'"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"encoder": "tiny", "num_classes": 2, "channels": 1} | options
    with pytest.raises(ValueError, match=message):
        build_model(**arguments)  # type: ignore[arg-type]
