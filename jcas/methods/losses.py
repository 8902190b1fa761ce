"""Losses that several methods are made of: robust ones, overlap ones, and how trust in a pixel enters all of them.

Every loss takes class maps (B, C, H, W), labels (B, H, W) with 255 = ignore, and ``weight`` (B, H, W), the trust in
each pixel; a pixel that is ignored or not trusted adds nothing, and without any labelled pixel the loss is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from jcas.schema import IGNORE

PROBABILITY_FLOOR = 1e-10


def trust(noisy: Tensor, weight: Tensor | None = None) -> Tensor:  # (B, H, W) -> (B, H, W) float
    """How much each pixel counts: its weight, 0 where it is ignored."""
    valid = (noisy != IGNORE).float()
    return valid if weight is None else valid * weight.to(valid.dtype)


def trusted_mean(values: Tensor, counts: Tensor) -> Tensor:  # (B, H, W), (B, H, W) -> ()
    """Mean of pixel values weighted by how much each counts; 0 if none does."""
    total = counts.sum()
    # Not a plain product: a pixel that does not count must not spoil the sum even if its value is infinite.
    return (values * counts).where(counts > 0, 0).sum() / total.where(total > 0, 1)


def given_probability(probs: Tensor, noisy: Tensor) -> Tensor:  # (B, C, H, W), (B, H, W) -> (B, H, W)
    """The predicted probability of the given label; of class 0 where the label is ignored."""
    return probs.gather(1, noisy.where(noisy != IGNORE, 0).long()[:, None])[:, 0]


def one_hot(noisy: Tensor, num_classes: int) -> Tensor:  # (B, H, W) -> (B, C, H, W)
    """Labels as class maps of 0 and 1; all 0 where they are ignored."""
    valid = noisy != IGNORE
    hot = functional.one_hot(noisy.where(valid, 0).long(), num_classes).movedim(-1, 1)
    return hot.float() * valid[:, None]


def pixel_cross_entropy(logits: Tensor, noisy: Tensor) -> Tensor:  # (B, C, H, W), (B, H, W) -> (B, H, W)
    """Cross-entropy of each pixel, 0 where the label is ignored."""
    return functional.cross_entropy(logits.float(), noisy.long(), ignore_index=IGNORE, reduction="none")


def soft_cross_entropy(
    logits: Tensor,  # (B, C, H, W)
    target: Tensor,  # (B, C, H, W) a distribution over the classes
    counts: Tensor,  # (B, H, W)
) -> Tensor:  # ()
    """Cross-entropy to soft labels, as soft as they come."""
    return trusted_mean(-(target * logits.float().log_softmax(1)).sum(1), counts)


def generalised_cross_entropy(probs: Tensor, noisy: Tensor, *, q: float, weight: Tensor | None = None) -> Tensor:  # ()
    r"""Between cross-entropy (q to 0) and mean absolute error (q = 1), after Zhang & Sabuncu, NeurIPS 2018.

    .. math:: L_q = \frac1K \sum_k \frac{1 - P_{\tilde Y(k)}(k)^q}{q}

    >>> generalised_cross_entropy(torch.tensor([0.25, 0.75]).view(1, 2, 1, 1), torch.zeros(1, 1, 1), q=0.5)
    tensor(1.)
    """
    given = given_probability(probs, noisy).clamp_min(PROBABILITY_FLOOR)
    return trusted_mean((1 - given**q) / q, trust(noisy, weight))


def reverse_cross_entropy(
    probs: Tensor, noisy: Tensor, *, floor: float = 1e-4, weight: Tensor | None = None
) -> Tensor:  # ()
    r"""Cross-entropy with label and prediction exchanged, log 0 replaced by log ``floor`` (Wang et al., ICCV 2019).

    .. math:: -\frac1K \sum_k \sum_c P_c(k) \log \max(1[\tilde Y(k) = c], \text{floor})
              = -\log(\text{floor})\,\frac1K \sum_k (1 - P_{\tilde Y(k)}(k))

    >>> reverse_cross_entropy(torch.tensor([0.25, 0.75]).view(1, 2, 1, 1), torch.zeros(1, 1, 1))  # 9.2103 * 0.75
    tensor(6.9078)
    """
    scale = -torch.tensor(floor).log().item()
    return scale * trusted_mean(1 - given_probability(probs, noisy), trust(noisy, weight))


def focal_loss(probs: Tensor, noisy: Tensor, *, gamma: float, weight: Tensor | None = None) -> Tensor:  # ()
    r"""Cross-entropy that looks away from what is already right (Lin et al., ICCV 2017).

    .. math:: -\frac1K \sum_k (1 - P_{\tilde Y(k)}(k))^\gamma \log P_{\tilde Y(k)}(k)

    >>> focal_loss(torch.tensor([0.5, 0.5]).view(1, 2, 1, 1), torch.zeros(1, 1, 1), gamma=2)  # 0.25 * 0.6931
    tensor(0.1733)
    """
    given = given_probability(probs, noisy).clamp_min(PROBABILITY_FLOOR)
    return trusted_mean((1 - given) ** gamma * -given.log(), trust(noisy, weight))


def lovasz_softmax(probs: Tensor, noisy: Tensor, *, weight: Tensor | None = None) -> Tensor:  # ()
    r"""Lovasz extension of the Jaccard loss, mean over the classes present in the batch (Berman et al., CVPR 2018).

    With the errors :math:`e = |1[\tilde Y = c] - P_c|` of all pixels sorted downwards, class c costs
    :math:`\sum_k e_k (J_k - J_{k-1})`, where :math:`J_k` is the Jaccard loss if exactly the first k pixels were wrong.
    A weight scales the error of its pixel. Cost O(K log K) for each class.

    >>> lovasz_softmax(torch.tensor([[0.9, 0.4], [0.1, 0.6]]).view(1, 2, 1, 2), torch.tensor([[[0, 0]]]))
    tensor(0.3500)
    """
    counts = trust(noisy, weight)
    kept = counts > 0
    labels, counts = noisy[kept].long(), counts[kept]
    flat = probs.movedim(1, -1)[kept]  # (K, C)
    losses = []
    for c in labels.unique().tolist():
        truth = (labels == c).to(flat.dtype)
        errors, order = ((truth - flat[:, c]).abs() * counts).sort(descending=True)
        losses.append(errors @ lovasz_weights(truth[order]))
    return torch.stack(losses).mean() if losses else (probs * 0).sum()


def lovasz_weights(truth: Tensor) -> Tensor:  # (K,) 0 or 1, sorted by falling error -> (K,)
    """How much the Jaccard loss grows when one more pixel, in this order, turns wrong.

    >>> lovasz_weights(torch.tensor([1.0, 0.0, 1.0]))  # Jaccard losses 1/2, 2/3, 1
    tensor([0.5000, 0.1667, 0.3333])
    """
    total = truth.sum()
    jaccard = 1 - (total - truth.cumsum(0)) / (total + (1 - truth).cumsum(0))
    return torch.cat([jaccard[:1], jaccard.diff()])


def soft_dice_loss(probs: Tensor, target: Tensor, counts: Tensor) -> Tensor:  # (B, C, H, W) twice, (B, H, W) -> ()
    r"""One minus Dice of soft labels, squared sums below (Milletari et al., 3DV 2016), mean over the target's classes.

    .. math:: 1 - \frac1{|c|} \sum_c \frac{2 \sum_k P_c Y_c}{\sum_k P_c^2 + Y_c^2}
    """
    share = counts[:, None]
    overlap = (probs * target * share).sum((0, 2, 3))
    size = ((probs**2 + target**2) * share).sum((0, 2, 3))
    present = (target * share).sum((0, 2, 3)) > 0
    dice = (2 * overlap + 1e-5) / (size + 1e-5)
    return ((1 - dice) * present).sum() / present.sum().clamp_min(1)
