r"""Losses against noisy labels, corrected by the noise: pixel by pixel and pair by pair."""

from __future__ import annotations

import torch
from torch import Tensor

from jcas.core.affinity import Affinity
from jcas.core.checks import IGNORE, as_labels, check_probabilities, check_transition, check_weight
from jcas.core.pairs import PROBABILITY_FLOOR, PairwiseLogLoss


def corrected_cross_entropy(
    probs: Tensor,  # (B, C, *spatial) clean-class probabilities P
    noisy: Tensor,  # (B, *spatial)    observed labels, 255 = ignore
    transition: Tensor,  # (C, C)      T[m, n] = p(noisy = n | clean = m)
    *,
    evidence: Tensor | None = None,  # (B, C, *spatial) what else speaks for each class, a constant
    weight: Tensor | None = None,  # (B, *spatial) trust in each pixel, a constant
) -> Tensor:  # ()
    r"""Cross-entropy between the noisy labels and the predictions carried through the noise.

    .. math:: L^C_{LC} = -\frac1K \sum_k \log\,[P(k)\,T_C]_{\tilde Y(k)}          \qquad (Sec. 2.2, class-level)

    and :math:`-\frac1K \sum_k \log \sum_c P_c(k)\, T_C(c, \tilde Y(k))\, E_c(k)` with ``evidence`` E, the likelihood of
    whatever is known besides the pixel's own label (`neighbour_evidence`), up to a factor of its own for each pixel.

    Mean over the K labelled pixels (the paper writes a sum), weighted if weights are given; 0 if there are none.
    With ``transition = I`` this is plain cross-entropy. Probabilities are floored at 1e-10. Cost O(K C^2).

    >>> probs = torch.tensor([0.9, 0.1]).view(1, 2, 1, 1)
    >>> T = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    >>> corrected_cross_entropy(probs, torch.zeros(1, 1, 1, dtype=torch.long), T)
    tensor(0.2877)
    """
    check_probabilities(probs)
    num_classes = probs.shape[1]
    check_transition(transition, num_classes=num_classes)
    noisy = as_labels(noisy, probs.shape[:1] + probs.shape[2:], num_classes=num_classes)
    valid = noisy != IGNORE
    with torch.autocast(probs.device.type, enabled=False):
        if probs.dtype in (torch.float16, torch.bfloat16):
            probs = probs.float()
        labels = noisy.where(valid, 0).flatten(1)[:, None]
        if evidence is None:
            noisy_probs = transition.to(probs.dtype).t() @ probs.flatten(2)  # (B, C, n)
            observed = noisy_probs.gather(1, labels).view_as(valid)
        else:
            check_weight(evidence, probs.shape, "evidence")
            likelihood = transition.to(probs.dtype)[:, labels[:, 0]].movedim(0, 1)  # (B, C, n)
            joint = probs.flatten(2) * likelihood * evidence.detach().to(probs.dtype).flatten(2)
            observed = joint.sum(1).view_as(valid)
        loss = -observed.clamp_min(PROBABILITY_FLOOR).log()
        if weight is None:
            trust = valid.to(loss.dtype)
        else:
            check_weight(weight, noisy.shape)
            trust = weight.detach().to(loss.dtype) * valid
        total = trust.sum()
        return (loss * trust).sum() / total.where(total > 0, 1)


@torch.compiler.disable  # loops over tiles whose number depends on the labels: nothing to trace
def corrected_affinity_loss(
    affinity: Affinity,
    noisy: Tensor,  # (B, *spatial) observed labels on the affinity grid, 255 = ignore
    affinity_transition: Tensor,  # (2, 2) T_A, index 0 = different, 1 = same; I = uncorrected
    *,
    weight: Tensor | None = None,  # (B, *spatial) trust in each pixel, a constant; a pair counts with the product
    max_pairs: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:  # ()
    r"""Binary cross-entropy of all pixel pairs: does the cosine, carried through the noise, say same or different?

    .. math::
        L^A_{LC} = -\frac{1}{Z} \sum_{i,j} w_i w_j \log\,[(1 - a_{ij},\, a_{ij})\, T_A]_{\tilde Y'_{ij}}, \qquad
        \tilde Y'_{ij} = [\tilde y_i = \tilde y_j], \quad Z = \sum_{i,j} w_i w_j      \qquad (Sec. 2.2, affinity-level)

    Exact over all ordered pairs of each image, the diagonal included; pairs with an ignored pixel are left out of the
    sum and of Z; 0 if no pair is left. The paper supervises the row-normalised map, whose entries are about 1/n and
    cannot answer a yes-no question: as in the released code the plain cosine is meant.

    Cost O(n^2 d) time, O(n d) memory: tiles of the upper triangle, value and gradient in the same pass (see
    `jcas.core.pairs`). ``max_pairs`` draws that many pairs at most, as a random block of rows times columns, with an
    expectation equal to the exact loss; ``generator`` makes the draw repeatable. The exact form has no second
    derivative and says so when asked.

    >>> affinity = Affinity(torch.tensor([[[1.0, 1.0], [0.0, 1.0]]]))    # cosine 0.7071
    >>> noisy = torch.tensor([[0, 1]])                                   # labelled different
    >>> corrected_affinity_loss(affinity, noisy, torch.eye(2))           # (0 + 2 * -ln(1 - 0.7071) + 0) / 4
    tensor(0.6140)
    """
    check_transition(affinity_transition, "affinity_transition", num_classes=2)
    labels = as_labels(noisy, affinity.unit.shape[:1] + affinity.spatial).flatten(1)
    trust = (labels != IGNORE).to(affinity.unit.dtype)
    if weight is not None:
        check_weight(weight, noisy.shape)
        trust = trust * weight.detach().flatten(1).to(trust.dtype)
    if max_pairs is not None and (not isinstance(max_pairs, int) or max_pairs < 1):
        raise ValueError(f"max_pairs must be a whole number of at least 1, got {max_pairs}")
    with torch.autocast(affinity.unit.device.type, enabled=False):
        pair_transition = affinity_transition.to(affinity.unit.dtype)
        if max_pairs is None or len(labels) * labels.shape[1] ** 2 <= max_pairs:
            return PairwiseLogLoss.apply(affinity.unit, pair_transition, labels, trust)
        return _sampled_pair_loss(affinity.unit, pair_transition, labels, trust, max_pairs, generator)


def _sampled_pair_loss(
    unit: Tensor,  # (B, d, n)
    pair_transition: Tensor,  # (2, 2)
    labels: Tensor,  # (B, n)
    trust: Tensor,  # (B, n)
    max_pairs: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Unbiased estimate of the exact loss from one random block of rows times columns for each image.

    Rows and columns are drawn independently, with replacement, in proportion to their weight, so that each ordered
    pair comes up in proportion to its own; a block costs one matrix product where lone pairs would cost gathers.
    """
    image_weight = trust.double().sum(1).square()
    total = image_weight.sum()
    used = (image_weight > 0).nonzero().flatten().tolist()
    if not used:
        return unit.sum() * 0 + pair_transition.sum() * 0  # a graph with zero gradient even when no pair is left
    side = max(1, int((max_pairs / len(used)) ** 0.5))
    loss = unit.new_zeros((), dtype=torch.float64)
    images = unit.unbind()  # once: the gradient of each unit[image] would be as large as that of the batch
    for image in used:
        drawn = _draw(trust[image], 2 * side, generator)
        rows, columns = drawn.view(2, side)
        of_rows, of_columns = images[image].index_select(1, drawn).split(side, 1)
        cosine = of_rows.t() @ of_columns
        same = labels[image][rows][:, None] == labels[image][columns][None]
        offset = torch.where(same, pair_transition[0, 1], pair_transition[0, 0])
        slope = torch.where(
            same, pair_transition[1, 1] - pair_transition[0, 1], pair_transition[1, 0] - pair_transition[0, 0]
        )
        observed = (offset + slope * cosine).clamp_min(PROBABILITY_FLOOR)
        loss = loss - image_weight[image] / total * observed.log().mean(dtype=torch.float64)
    return loss.to(unit.dtype)


def _draw(weight: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Indices drawn with replacement in proportion to their weight; `torch.multinomial` takes only 2^24 of them."""
    cumulative = weight.double().cumsum(0)
    points = torch.rand(count, generator=generator, device=weight.device, dtype=torch.float64) * cumulative[-1]
    return torch.searchsorted(cumulative, points, right=True).clamp_max(len(weight) - 1)
