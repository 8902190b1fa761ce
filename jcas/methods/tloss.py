"""T-Loss: a likelihood with heavy tails, which learn how many outliers there are."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from jcas.methods.base import HeadLossMethod
from jcas.methods.losses import one_hot, trust
from jcas.schema import Batch


def t_loss(
    squared_error: Tensor,  # (...) sum over the pixels of an image of (p - y)^2
    count: Tensor,  # (...) D, the number of those pixels
    log_freedom: Tensor,  # (...) v
    *,
    log_precision: float,
) -> Tensor:  # (...)
    r"""Negative log-likelihood of a D-dimensional Student distribution for each image, divided by D; 0 where D is 0.

    .. math:: \frac1D \Bigl[\log\Gamma(\tfrac\nu2) - \log\Gamma(\tfrac{\nu + D}2) + \tfrac D2 \log(\pi\nu)
              - \tfrac D2 l + \tfrac{\nu + D}2 \log\bigl(1 + \tfrac{e^l}{\nu} \sum_k (p_k - y_k)^2\bigr)\Bigr],
              \qquad \nu = e^v

    >>> one = torch.tensor(1.0)
    >>> t_loss(0 * one, one, 0 * one, log_precision=0.0)  # a Cauchy distribution at its middle: log(pi)
    tensor(1.1447)
    """
    freedom = log_freedom.exp()
    volume = torch.lgamma(freedom / 2) - torch.lgamma((freedom + count) / 2)
    volume = volume + count / 2 * (math.log(math.pi) + log_freedom - log_precision)
    tail = (freedom + count) / 2 * torch.log1p(math.exp(log_precision) * squared_error / freedom)
    return (volume + tail) / count.clamp_min(1)


class TLoss(HeadLossMethod):
    r"""T-Loss: the errors of an image follow a Student distribution, whose tails forgive what a Gaussian would not.

    Gonzalez-Jimenez et al., Robust T-Loss for Medical Image Segmentation, MICCAI 2023. The loss of a map p against a
    mask y of D pixels with squared error S, for nu degrees of freedom, is (nu + D) / (2 D) * log(1 + e^l S / nu) and
    what does not depend on p (`t_loss`).

    Learns: the model, and for each class the degrees of freedom (small: many outliers; large: squared error).
    ``log_precision`` 1 is the authors' fixed value, 0 the textbook form. The degrees of freedom start at e, as there.
    Differs from the original, which knows one foreground that all images show: each class against the rest, mean over
    the classes that an image's labels show, then over images (the gradient goes as (p - y) / (nu + sum of squares), so
    images without a class, whose errors are small, would outvote those that show it, and rare classes would vanish);
    divided by the number of labelled pixels, so that the auxiliary head's weight and weight decay keep their meaning;
    the degrees of freedom learn at the rate of matrices (1e-3 there).
    """

    paper = "Gonzalez-Jimenez et al., MICCAI 2023"

    def __init__(self, model: nn.Module, num_classes: int, *, log_precision: float = 1.0) -> None:
        super().__init__(model, num_classes)
        self.log_precision = log_precision
        self.log_freedom = nn.Parameter(torch.ones(num_classes))

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """T-Loss of one head, every class against the rest."""
        counts = trust(batch.noisy, batch.weight)
        given = one_hot(batch.noisy, self.num_classes)
        difference = logits.float().softmax(1) - given
        squared = (difference**2 * counts[:, None]).sum((2, 3))  # (B, C)
        labelled = counts.sum((1, 2))[:, None].expand_as(squared)
        losses = t_loss(squared, labelled, self.log_freedom.float(), log_precision=self.log_precision)
        shown = ((given * counts[:, None]).sum((2, 3)) > 0).to(losses)  # (B, C)
        classes = shown.sum(1)
        return ((losses * shown).sum(1) / classes.clamp_min(1)).sum() / (classes > 0).sum().clamp_min(1)
