"""The tiny encoder is small, and learns small structures from scratch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jcas.models import build_model


def rings(count: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Grey images of a bright disc inside a dark ring, as a ventricle in its wall; labels 0, 1 (ring), 2 (disc)."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.rand(count, 2, generator=generator) * 24 + 20
    away = ((rows - centre[:, :1, None]) ** 2 + (columns - centre[:, 1:, None]) ** 2).sqrt()
    labels = torch.where(away < 6, 2, torch.where(away < 10, 1, 0))
    level = torch.tensor([0.5, 0.3, 0.8])[labels]
    return (level + 0.05 * torch.randn(level.shape, generator=generator)).clamp(0, 1)[:, None], labels


def test_tiny_has_about_half_a_million_parameters() -> None:
    model = build_model("tiny", num_classes=4, channels=1, feature_dim=64, auxiliary_features=True)
    assert 0.2e6 < sum(parameter.numel() for parameter in model.parameters()) < 0.7e6


def test_tiny_learns_thin_rings_from_scratch() -> None:
    torch.manual_seed(0)
    model = build_model("tiny", num_classes=3, channels=1)
    images, labels = rings(24)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(120):
        part = slice(4 * (step % 4), 4 * (step % 4) + 4)  # the last eight images stay unseen
        logits = functional.interpolate(model(images[part]).logits, labels.shape[-2:], mode="bilinear")
        loss = functional.cross_entropy(logits, labels[part])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        logits = functional.interpolate(model(images[16:]).logits, labels.shape[-2:], mode="bilinear")
    found = logits.argmax(1)
    for label in (1, 2):
        both = ((found == label) & (labels[16:] == label)).sum()
        either = ((found == label) | (labels[16:] == label)).sum()
        assert both / either > 0.7, f"Jaccard of label {label} is {both / either:.2f}"
