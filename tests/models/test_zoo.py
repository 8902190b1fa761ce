"""timm backbones: a clear word when timm is absent, the contract when it is there."""

from __future__ import annotations

import sys

import pytest
import torch

from jcas.models import build_model


def test_missing_timm_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)  # import fails as if not installed
    with pytest.raises(ValueError, match=r"encoder timm:resnet10t needs timm .*\[zoo\]"):
        build_model("timm:resnet10t", num_classes=2, channels=1)


def test_timm_backbone_keeps_the_contract() -> None:
    pytest.importorskip("timm")
    model = build_model("timm:resnet10t", num_classes=2, channels=1, feature_dim=4, output_stride=16)
    output = model(torch.rand(2, 1, 65, 81))
    assert output.logits.shape == (2, 2, 5, 6)
    assert output.features is not None and output.features.shape == (2, 4, 5, 6)


def test_timm_names_and_transformers_are_refused_clearly() -> None:
    pytest.importorskip("timm")
    with pytest.raises(ValueError, match=r"did you mean timm:resnet26\w*\?"):
        build_model("timm:resnet26x", num_classes=2, channels=1)
    with pytest.raises(ValueError, match="gives no feature maps of stride 8"):
        build_model("timm:vit_tiny_patch16_224", num_classes=2, channels=1)
