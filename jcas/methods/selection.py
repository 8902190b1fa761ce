"""Choosing pixels whose labels are probably right: those that a network finds easy, class by class."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from jcas.methods.base import AUXILIARY_WEIGHT, resized
from jcas.methods.losses import pixel_cross_entropy, trust, trusted_mean
from jcas.schema import IGNORE, Batch, Output


@torch.no_grad()
def easiest(
    losses: Tensor, noisy: Tensor, candidates: Tensor, *, keep: Sequence[float]
) -> Tensor:  # (B, H, W) each -> bool
    """The share ``keep`` of the candidate pixels of each given class, rounded up, that have the smallest losses.

    Class by class, because over all pixels together a rare class, which is learnt late, would lose all of its pixels.

    >>> losses, labels = torch.tensor([[0.1, 0.9, 0.5, 2.0]]), torch.tensor([[0, 0, 0, 1]])
    >>> easiest(losses, labels, labels >= 0, keep=(0.6, 1.0))
    tensor([[ True, False,  True,  True]])
    """
    chosen = torch.zeros_like(candidates)
    for c in noisy[candidates].unique().tolist():
        if c == IGNORE:
            continue
        mine = candidates & (noisy == c)
        values = losses[mine]
        count = math.ceil(keep[c] * values.numel())
        picked = torch.zeros_like(values, dtype=torch.bool)
        picked[values.topk(count, largest=False).indices] = True
        chosen[mine] = picked
    return chosen


def remembered(epoch: int, *, forget_rate: float, ramp: int) -> float:
    """Share of the pixels to train on: falls linearly from 1 to 1 - forget_rate over ``ramp`` epochs.

    >>> [round(remembered(epoch, forget_rate=0.2, ramp=2), 2) for epoch in range(4)]
    [1.0, 0.9, 0.8, 0.8]
    """
    return 1 - forget_rate * min(epoch / max(ramp, 1), 1.0)


def peer_losses(outputs: Sequence[Output], batch: Batch) -> tuple[list[Tensor], list[Tensor | None], Tensor]:
    """Pixel losses of the main and of the auxiliary head of each network, and how much each pixel counts."""
    size = batch.noisy.shape[1:]

    def losses(logits: Tensor) -> Tensor:
        return pixel_cross_entropy(resized(logits, size), batch.noisy)

    main = [losses(output.logits) for output in outputs]
    auxiliary = [None if output.auxiliary is None else losses(output.auxiliary.logits) for output in outputs]
    return main, auxiliary, trust(batch.noisy, batch.weight)


def peer_training(
    main: Sequence[Tensor], auxiliary: Sequence[Tensor | None], counts: Tensor, selected: Sequence[Tensor]
) -> dict[str, Tensor]:
    """What ``forward`` returns: each network on the pixels that were selected for it, mean over the networks."""

    def mean(losses: Sequence[Tensor | None]) -> Tensor | None:
        taught = zip(losses, selected, strict=True)
        each = [trusted_mean(loss, counts * chosen) for loss, chosen in taught if loss is not None]
        return torch.stack(each).mean() if each else None

    class_loss, auxiliary_loss = mean(main), mean(auxiliary)
    assert class_loss is not None
    parts = {"loss": class_loss, "class_loss": class_loss}
    if auxiliary_loss is not None:
        parts["loss"] = class_loss + AUXILIARY_WEIGHT * auxiliary_loss
        parts["auxiliary_loss"] = auxiliary_loss
    return parts
