"""Confident learning: count how often labels and confident predictions disagree, and prune that many labels.

Northcutt et al., Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor


def confident_joint(probs: Tensor, noisy: Tensor) -> Tensor:  # (n, C), (n,) -> (C, C) float64
    r"""How many labels of class i are confidently of class j, each row scaled to the number of labels of its class.

    A prediction is confident of class j if its probability of j reaches the mean that labels of j get,
    :math:`t_j = mean(P_j \mid \tilde y = j)`; of several such classes the most probable counts. A class without a
    confident label counts as right. All labels must be of a class.

    >>> probs = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
    >>> confident_joint(probs, torch.tensor([0, 0, 0, 1]))  # thresholds 0.6 and 0.9: the third is confident of neither
    tensor([[3., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    num_classes = probs.shape[1]
    counts = torch.bincount(noisy, minlength=num_classes).double()
    own = probs.gather(1, noisy[:, None])[:, 0].double()
    thresholds = own.new_zeros(num_classes).index_add_(0, noisy, own) / counts.clamp_min(1)
    thresholds = thresholds.where(counts > 0, 2.0)  # nothing is confident of a class that nobody labelled
    confident = probs.double() >= thresholds - 1e-6
    believed = probs.where(confident, -1).argmax(1)
    certain = confident.any(1)
    cells = noisy[certain] * num_classes + believed[certain]
    joint = torch.bincount(cells, minlength=num_classes**2).view(num_classes, num_classes).double()
    found = joint.sum(1, keepdim=True)
    joint = torch.where(found > 0, joint, counts.diag())
    return joint / joint.sum(1, keepdim=True).clamp_min(1) * counts[:, None]


def label_errors(probs: Tensor, noisy: Tensor) -> Tensor:  # (n, C), (n,) -> (n,) bool
    """Labels that are probably wrong: pruned both by class and by noise rate, and not what is predicted.

    By class: of the labels of class i those least probable, as many as the joint counts wrong in row i. By noise rate:
    of the labels of class i those with the largest margin of j over i, as many as the joint counts in (i, j).
    """
    joint = confident_joint(probs, noisy).round().long()
    num_classes = probs.shape[1]
    by_class, by_rate = torch.zeros_like(noisy, dtype=torch.bool), torch.zeros_like(noisy, dtype=torch.bool)
    for given in range(num_classes):
        mine = (noisy == given).nonzero()[:, 0]
        wrong = min(int(joint[given].sum() - joint[given, given]), mine.numel())
        if not wrong:
            continue
        by_class[mine[probs[mine, given].topk(wrong, largest=False).indices]] = True
        for other in range(num_classes):
            count = min(int(joint[given, other]), mine.numel())
            if other != given and count:
                margin = probs[mine, other] - probs[mine, given]
                by_rate[mine[margin.topk(count).indices]] = True
    return by_class & by_rate & (probs.argmax(1) != noisy)
