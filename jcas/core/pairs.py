r"""The engine of the exact affinity loss: all pairs of pixels, tile by tile, value and gradient in one pass.

With :math:`s_{ij} = \alpha + \beta a_{ij}` the noisy probability of what the labels say of the pair,

- labelled same: :math:`\alpha = T_A(0,1),\ \beta = T_A(1,1) - T_A(0,1)`,
- labelled different: :math:`\alpha = T_A(0,0),\ \beta = T_A(1,0) - T_A(0,0)`,

the loss is :math:`-\sum w_i w_j \log s_{ij} / Z`. Its gradients need only :math:`r_{ij} = 1 / s_{ij}` through the thin
product :math:`A = R\,[wF \mid w]` (:math:`F` unit features as rows), kept apart for same and different pairs:

.. math::
    \partial L / \partial F = -\tfrac2Z \sum_{kind} \beta\, w \odot A_{:, :d}, \qquad
    \sum w_i w_j r_{ij} = w^\top A_{:, d}, \qquad \sum w_i w_j r_{ij} a_{ij} = \langle wF, A_{:, :d}\rangle

so that each tile costs three matrix products, one logarithm and one reciprocal per pair, and nothing of a tile
outlives it. Pixels are sorted by label: a run of one class against itself holds only same pairs, against everything
behind it only different ones, and no tile needs a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

PROBABILITY_FLOOR = 1e-10
"""A pair or pixel that the model calls impossible costs -log(1e-10) = 23 and pulls no more."""

TILE = 768
"""Side of a tile: large enough for fast products, its two buffers of 2.3 MB small enough for a core's cache."""

DIFFERENT, SAME = 0, 1


class PairwiseLogLoss(torch.autograd.Function):
    """Exact pair loss; the forward pass already computes the gradients that the backward pass hands out."""

    @staticmethod
    def forward(ctx: Any, unit: Tensor, pair_transition: Tensor, labels: Tensor, trust: Tensor) -> Tensor:
        """Shapes: unit (B, d, n), pair_transition (2, 2), labels and trust (B, n)."""
        with_gradient = any(ctx.needs_input_grad[:2])
        table = pair_transition.double().tolist()
        total_weight = trust.double().sum(1).square().sum().item()
        scale = 1 / total_weight if total_weight > 0 else 0.0
        unit_gradient = torch.zeros_like(unit) if with_gradient else None
        table_gradient = torch.zeros(2, 2, dtype=torch.float64, device=unit.device)
        value = torch.zeros((), dtype=torch.float64, device=unit.device)
        for image in range(len(unit)):
            kept, run_lengths = _sorted_runs(labels[image], trust[image])
            if not run_lengths:
                continue
            pixels = _Pixels(unit[image].index_select(1, kept).t(), trust[image][kept])
            image_value, kinds = _image_pairs(pixels, run_lengths, table, with_gradient)
            value -= image_value
            if unit_gradient is None:
                continue
            pull = torch.zeros_like(pixels.features)
            for kind in (DIFFERENT, SAME):
                slope = table[1][kind] - table[0][kind]
                pull.add_(kinds[kind][:, :-1], alpha=-2 * slope * scale)
                inverse_sum = (pixels.weight.double() * kinds[kind][:, -1]).sum()
                inverse_cosine_sum = torch.sum(pixels.weighted[:, :-1] * kinds[kind][:, :-1], dtype=torch.float64)
                table_gradient[0, kind] -= scale * (inverse_sum - inverse_cosine_sum)
                table_gradient[1, kind] -= scale * inverse_cosine_sum
            unit_gradient[image].index_copy_(1, kept, (pull * pixels.weight[:, None]).t())
        if with_gradient:
            ctx.save_for_backward(unit_gradient, table_gradient.to(pair_transition.dtype), unit, pair_transition)
        return (value * scale).clamp_min(0).to(unit.dtype)  # a cosine of 1 + rounding has a positive logarithm

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Scale the gradients of the forward pass."""
        unit_gradient, table_gradient, *inputs = ctx.saved_tensors
        return (
            _OnceScaled.apply(gradients[0], unit_gradient, *inputs) if ctx.needs_input_grad[0] else None,
            _OnceScaled.apply(gradients[0], table_gradient, *inputs) if ctx.needs_input_grad[1] else None,
            None,
            None,
        )


class _OnceScaled(torch.autograd.Function):
    """``factor * constant`` that knows of the inputs behind the constant, so as to refuse a second derivative."""

    @staticmethod
    def forward(ctx: Any, factor: Tensor, constant: Tensor, *inputs: Tensor) -> Tensor:
        return factor * constant

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError(
            "corrected_affinity_loss has no second derivative in its exact form; "
            "pass max_pairs= for the sampled form, which has one"
        )


class _Pixels:
    """The labelled pixels of one image as rows, sorted by label."""

    def __init__(self, features: Tensor, weight: Tensor) -> None:
        self.features = features.contiguous()  # (n, d)
        self.weight = weight  # (n,)
        self.weighted = torch.cat([self.features * weight[:, None], weight[:, None]], dim=1)  # (n, d + 1)


def _sorted_runs(labels: Tensor, trust: Tensor) -> tuple[Tensor, list[int]]:
    """Indices of the pixels that count, sorted by label, and the length of each label's run."""
    kept = (trust > 0).nonzero().flatten()
    sorted_labels, order = labels[kept].sort(stable=True)
    return kept[order], torch.unique_consecutive(sorted_labels, return_counts=True)[1].tolist()


def _tiles(run_lengths: list[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Rectangles (kind, row start, row end, column start, column end) that cover the upper triangle once.

    A rectangle on the diagonal (equal row and column range) holds both halves of its pairs.
    """
    count = sum(run_lengths)
    start = 0
    for length in run_lengths:
        end = start + length
        for row in range(start, end, TILE):
            row_end = min(row + TILE, end)
            for column in range(row, end, TILE):
                yield SAME, row, row_end, column, min(column + TILE, end)
            width = max(TILE, TILE * TILE // (row_end - row) // TILE * TILE)  # few rows: more columns at once
            for column in range(end, count, width):
                yield DIFFERENT, row, row_end, column, min(column + width, count)
        start = end


def _image_pairs(
    pixels: _Pixels, run_lengths: list[int], table: list[list[float]], with_gradient: bool
) -> tuple[Tensor, list[Tensor]]:
    """Sum of w_i w_j log s_ij over all ordered pairs (float64), and the products A for different and same pairs."""
    features, weight, weighted = pixels.features, pixels.weight, pixels.weighted
    value = torch.zeros((), dtype=torch.float64, device=features.device)
    kinds = [torch.zeros_like(weighted) if with_gradient else weighted[:0] for _ in (DIFFERENT, SAME)]
    scratch = features.new_empty(2, TILE * TILE)
    for kind, row, row_end, column, column_end in _tiles(run_lengths):
        rows, columns = slice(row, row_end), slice(column, column_end)
        offset, slope = table[0][kind], table[1][kind] - table[0][kind]
        shape = (row_end - row, column_end - column)
        observed, logarithm = (buffer[: shape[0] * shape[1]].view(shape) for buffer in scratch)
        torch.mm(features[rows], features[columns].t(), out=observed)
        observed.mul_(slope).add_(offset)
        # The cosine lies in [0, 1] up to rounding, so the floor can only matter where an end of the range is near it.
        floored = min(offset, offset + slope) < 1e-5
        if floored:
            beyond = observed <= PROBABILITY_FLOOR
            observed.masked_fill_(beyond, PROBABILITY_FLOOR)
        torch.log(observed, out=logarithm)
        diagonal = row == column
        value += (1 if diagonal else 2) * (logarithm @ weight[columns]).double().dot(weight[rows].double())
        if not with_gradient:
            continue
        inverse = observed.reciprocal_()
        if floored:
            inverse.masked_fill_(beyond, 0)
        kinds[kind][rows].addmm_(inverse, weighted[columns])
        if not diagonal:
            kinds[kind][columns].addmm_(inverse.t(), weighted[rows])
    return value, kinds
