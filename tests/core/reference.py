"""Slow literal forms: the paper's formulas as they are written, loops and dense n x n maps."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def four_loop_theorem(transition: Tensor, prior: Tensor) -> Tensor:
    """The sums of the paper's proof (Eqs. 4-7 of the supplement), term by term; index 0 = different, 1 = same."""
    count = len(transition)
    sums = [[transition.new_zeros(()) for _ in range(2)] for _ in range(2)]
    for clean_1 in range(count):
        for clean_2 in range(count):
            for noisy_1 in range(count):
                for noisy_2 in range(count):
                    sums[int(clean_1 == clean_2)][int(noisy_1 == noisy_2)] += (
                        prior[clean_1] * prior[clean_2] * transition[clean_1, noisy_1] * transition[clean_2, noisy_2]
                    )
    rows = []
    for clean in range(2):
        total = sums[clean][0] + sums[clean][1]
        rows.append(torch.stack([sums[clean][0] / total, sums[clean][1] / total]))
    return torch.stack(rows)


def dense_cosine(features: Tensor) -> Tensor:
    """(B, d, *spatial) -> (B, n, n), pixel by pixel pair."""
    flat = features.flatten(2).relu().transpose(1, 2)
    norms = flat.norm(dim=2)
    safe = torch.where(norms > 0, norms, torch.ones_like(norms))
    return torch.einsum("bid,bjd->bij", flat, flat) / (safe[:, :, None] * safe[:, None, :])


def row_normalised(matrix: Tensor) -> Tensor:
    sums = matrix.sum(-1, keepdim=True)
    return torch.where(sums > 0, matrix / torch.where(sums > 0, sums, torch.ones_like(sums)), torch.zeros_like(matrix))


def dense_maps(features: Tensor, *, cosine_reverse: bool) -> tuple[Tensor, Tensor]:
    """P' and P'_re; a pixel without features has empty rows in both."""
    cosine = dense_cosine(features)
    affinity = row_normalised(cosine)
    reverse = row_normalised(1 - (cosine if cosine_reverse else affinity))
    has_features = (cosine.sum(-1, keepdim=True) > 0).to(reverse.dtype)
    return affinity, reverse * has_features


def apply_map(dense: Tensor, values: Tensor) -> Tensor:
    """(B, n, n) times (B, C, *spatial)."""
    return torch.einsum("bij,bcj->bci", dense, values.flatten(2)).view_as(values)


def dense_refine(coarse: Tensor, features: Tensor, *, cosine_reverse: bool) -> Tensor:
    affinity, reverse = dense_maps(features, cosine_reverse=cosine_reverse)
    p_intra = coarse + apply_map(affinity, coarse)
    p_inter = coarse - apply_map(reverse, coarse)
    return (p_intra + p_inter) / 2


def dense_affinity_loss(features: Tensor, noisy: Tensor, affinity_transition: Tensor, weight: Tensor) -> Tensor:
    """Every ordered pair with its two-vector (1 - a, a) carried through the 2 x 2 matrix."""
    cosine = dense_cosine(features)
    through_noise = torch.stack([1 - cosine, cosine], dim=-1) @ affinity_transition
    labels = noisy.flatten(1)
    same = (labels[:, :, None] == labels[:, None, :]).long()
    observed = through_noise.gather(-1, same[..., None])[..., 0].clamp_min(1e-10)
    trust = weight.flatten(1) * (labels != 255)
    pair_weight = trust[:, :, None] * trust[:, None, :]
    return -(pair_weight * observed.log()).sum() / pair_weight.sum()


def looped_cross_entropy(probs: Tensor, noisy: Tensor, transition: Tensor, *, evidence: Tensor | None = None) -> Tensor:
    evidence = torch.ones_like(probs) if evidence is None else evidence
    total, count = probs.new_zeros(()), 0
    for image, labels, said in zip(probs.flatten(2), noisy.flatten(1), evidence.flatten(2), strict=True):
        for pixel, label, factor in zip(image.t(), labels.tolist(), said.t(), strict=True):
            if label != 255:
                total = total - torch.log(sum(pixel[c] * transition[c, label] * factor[c] for c in range(len(pixel))))
                count += 1
    return total / count


def looped_neighbour_evidence(
    probs: Tensor, noisy: Tensor, transition: Tensor, reach: int, weight: Tensor | None
) -> Tensor:
    """Pixel by pixel, neighbour by neighbour, class by class; before its factor for each pixel."""
    images, classes, height, width = probs.shape
    found = torch.ones_like(probs)
    for image, y, x in itertools.product(range(images), range(height), range(width)):
        own = probs[image, :, y, x].tolist()
        for down, right in itertools.product((-reach, 0, reach), repeat=2):
            there_y, there_x = y + down, x + right
            if (down, right) == (0, 0) or not (0 <= there_y < height and 0 <= there_x < width):
                continue
            label = int(noisy[image, there_y, there_x])
            if label == 255:
                continue
            trust = 1.0 if weight is None else float(weight[image, there_y, there_x])
            said = [float(transition[m, label]) ** trust for m in range(classes)]
            theirs = probs[image, :, there_y, there_x].tolist()
            more = [max(0.0, theirs[m] - own[m]) for m in range(classes)]
            for c in range(classes):
                share = min(1.0, theirs[c] / own[c])
                other = sum(more[m] * said[m] for m in range(classes)) / sum(more)
                found[image, c, y, x] *= share * said[c] + (1 - share) * other
    return found
