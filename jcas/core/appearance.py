r"""Evidence that no label touched: does a pixel look like the pixels of a class nearby in the same image?

Masks drawn in a hurry (ellipses, polygons, too wide, too narrow) are wrong in a way that a network can learn and that
no class transition matrix explains. The image itself can say so: a lung pixel inside a mask of heart muscle does not
look like muscle. Nothing here needs training or a gradient, and each image speaks for itself; `unchallenged` alone
compares with the other images of the batch.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn import functional

from jcas.core.checks import IGNORE, as_labels, check_num_classes

WINDOW = 1 / 8
"""Standard deviation of the neighbourhood that describes a class, as a share of the image's side."""

REACH = 1 / 16
"""Standard deviation of the blur that says how far from its labels a class may be found."""

FLOOR = 0.2
"""Least standard deviation of a class's colours, in standard deviations of the whole image."""

_SUPPORT = 1e-3
_MOST_AT_ONCE = 1 << 25  # numbers in one of the products of colours and classes
_MOST_ROUGH = 0.025
_FEW_PIXELS = 20  # an outline of so few proves little
_LEAST_CHANGES = 8
_LEAST_RUNS = 15  # of fewer rows, some equal by chance, the lengths may look as if one factor had made them
_LEAST_FACTOR = 1.2  # below it, too; and so small an enlargement hardly changes the roughness


def blurred(maps: Tensor, sigma: float) -> Tensor:  # (B, K, H, W) -> (B, K, h, w)
    r"""Gaussian blur of maps on a grid of about :math:`\sigma / 2` pixels: what is left after it needs no finer one.

    A cell is the mean over its area; the border repeats. Cost does not grow with sigma.
    """
    height, width = maps.shape[2:]
    step = max(1, int(sigma / 2))
    grid = (max(1, round(height / step)), max(1, round(width / step)))
    small = functional.interpolate(maps, grid, mode="area")
    radius = max(1, math.ceil(3 * sigma / step))
    offsets = torch.arange(-radius, radius + 1, device=maps.device, dtype=maps.dtype)
    kernel = torch.exp(-((offsets * step) ** 2) / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    flat = small.reshape(-1, 1, *grid)
    flat = functional.conv2d(functional.pad(flat, (radius, radius, 0, 0), mode="replicate"), kernel.view(1, 1, 1, -1))
    flat = functional.conv2d(functional.pad(flat, (0, 0, radius, radius), mode="replicate"), kernel.view(1, 1, -1, 1))
    return flat.view_as(small)


def _enlarged(maps: Tensor, size: torch.Size) -> Tensor:
    return functional.interpolate(maps, tuple(size), mode="bilinear", align_corners=False)


def local_appearance(
    image: Tensor,  # (B, channels, H, W)
    membership: Tensor,  # (B, C, H, W) how much each pixel belongs to each class
    *,
    window: float = WINDOW,
) -> Tensor:  # (B, C, H, W)
    r"""Log-density of each pixel's colour under the colours that each class has nearby (up to a constant).

    .. math:: \mu_c = \frac{G * q_c I}{G * q_c}, \quad
              \sigma_c^2 = \frac{G * q_c I^2}{G * q_c} - \mu_c^2 + \phi^2, \quad
              \ell_c = -\frac{1}{2\sqrt d} \sum_{k=1}^{d}
              \Bigl(\frac{(I_k - \mu_{ck})^2}{\sigma_{ck}^2} + \log \sigma_{ck}^2\Bigr)

    for an image I of d channels, each with mean 0 and deviation 1 over the image, membership q, a Gaussian window G
    and the floor :math:`\phi`. Mean, :math:`1 / \sigma^2` and :math:`\log \sigma^2` live on the grid of the window
    (`blurred`) and are interpolated. Channels are far from independent, hence :math:`\sqrt d` where independence has 1.
    """
    with torch.autocast(image.device.type, enabled=False):  # variances are differences of means of squares
        exact = torch.promote_types(image.dtype, torch.float32)
        colour, membership = _standardised(image.to(exact)), membership.to(exact)
        together = max(1, _MOST_AT_ONCE // colour.numel())  # of large images with many classes a few classes at a time
        return torch.cat([_log_density(colour, some, window) for some in membership.split(together, 1)], 1)


def _log_density(colour: Tensor, membership: Tensor, window: float) -> Tensor:
    size, (classes, channels) = colour.shape[2:], (membership.shape[1], colour.shape[1])
    weighted = membership[:, :, None] * colour[:, None]  # (B, C, channels, H, W)
    moments = torch.cat([membership, weighted.flatten(1, 2), (weighted * colour[:, None]).flatten(1, 2)], 1)
    moments = blurred(moments, window * math.sqrt(size.numel()))
    mass, first, second = moments.split([classes, classes * channels, classes * channels], 1)
    mass = mass.clamp_min(1e-6).repeat_interleave(channels, 1)
    mean = first / mass
    variance = (second / mass - mean**2).clamp_min(0) + FLOOR**2
    mean, precision, logarithm = _enlarged(torch.cat([mean, 1 / variance, variance.log()], 1), size).chunk(3, 1)
    distance = (colour.repeat(1, classes, 1, 1) - mean).square_().mul_(precision).add_(logarithm)
    return distance.unflatten(1, (classes, channels)).sum(2).div_(-2 * math.sqrt(channels))


def _standardised(image: Tensor) -> Tensor:
    spread, mean = torch.std_mean(image, (2, 3), correction=0, keepdim=True)
    return (image - mean) / spread.clamp_min(1e-6)


def repaired(
    image: Tensor,  # (B, channels, H, W)
    noisy: Tensor,  # (B, H, W) labels as given, 255 = ignore
    probs: Tensor,  # (B, C, H, W) what a model that has learned these labels says
    *,
    belief: float = 0.5,
    rounds: int = 2,
) -> Tensor:  # (B, C, H, W)
    r"""Labels as image, model and given labels together see them.

    .. math:: q_c \propto \bigl((1 - b)\, [\tilde y = c] + b\, p_c\, [c \text{ is labelled nearby}]\bigr)\;
              \exp \ell_c(I, q)

    with `local_appearance` :math:`\ell` measured on q itself, a few ``rounds`` of it, and the ``belief`` b in the
    model. At ignored pixels the model speaks alone. A class is never found far from where it is labelled, so bright
    tissue at the other side of the image does not become heart.
    """
    classes = probs.shape[1]
    known = as_labels(noisy, noisy.shape, num_classes=classes)[:, None]
    given = (known == torch.arange(classes, device=known.device).view(1, -1, 1, 1)).to(probs)
    near = _enlarged(blurred(given, REACH * math.sqrt(known[0].numel())), known.shape[2:]) > _SUPPORT
    belief_here = torch.where(known == IGNORE, 1.0, probs.new_tensor(belief))
    prior = (1 - belief_here) * given + belief_here * probs * near
    return _by_appearance(image, prior, 1.0, rounds)


def unchallenged(
    noisy: Tensor,  # (B, H, W) labels as given, 255 = ignore
    found: Tensor,  # (B, C, H, W) `repaired`
) -> Tensor:  # (B, H, W)
    r"""The labels that stand; the others become 255 = ignore. None is replaced.

    .. math:: q_{\tilde y} \ge \min(\max_c q_c,\; \operatorname{median}\, q_{\tilde y} \text{ over labels of its class})

    With the belief 1/2 of `repaired` a model that is sure of another class cannot set a label aside by itself, only
    together with the image: hard pixels go on teaching. The median is taken over the batch: whatever the image says,
    half of the labels of a class stand, so that no class is lost.

    >>> found = torch.tensor([[[[0.95, 0.6, 0.8, 0.7]], [[0.05, 0.4, 0.2, 0.3]]]])
    >>> unchallenged(torch.tensor([[[0, 0, 1, 1]]]), found)
    tensor([[[  0,   0, 255,   1]]])
    """
    labels = as_labels(noisy, noisy.shape, num_classes=found.shape[1])
    share = found.gather(1, torch.where(labels == IGNORE, 0, labels)[:, None])[:, 0]
    needed = found.amax(1)
    for index in range(found.shape[1]):
        own = labels == index
        if bool(own.any()):
            shares = share[own]
            upper_median = shares.kthvalue(len(shares) // 2 + 1).values
            needed = torch.where(own, needed.clamp_max(upper_median), needed)
    return torch.where(share >= needed, labels, IGNORE)


def refined_by_appearance(
    image: Tensor,  # (B, channels, H, W)
    probs: Tensor,  # (B, C, H, W)
    *,
    groups: Tensor | None = None,  # (C,) a number for each class, the same for those that looks do not tell apart
    power: float = 0.5,
    rounds: int = 2,
) -> Tensor:  # (B, C, H, W)
    r"""A prediction that also asks whether pixels look like their class nearby.

    .. math:: q_c \propto p_c \exp(\gamma\, \ell_{G(c)}(I, q)), \qquad
              \exp \ell_G = \sum_{m \in G} q_m \exp \ell_m \Big/ \sum_{m \in G} q_m

    A prediction, unlike a label, has seen the image: the ``power`` :math:`\gamma` below 1 does not count it twice.
    Classes of one group G look alike: looks speak for or against all of them, and leave their shares as they are.
    Without ``groups`` each class is one.
    """
    return _by_appearance(image, probs, power, rounds, groups)


def _by_appearance(image: Tensor, prior: Tensor, power: float, rounds: int, groups: Tensor | None = None) -> Tensor:
    logarithm = prior.clamp_min(1e-9).log()
    found = logarithm.softmax(1)
    for _ in range(rounds):
        likely = local_appearance(image, found)
        if groups is not None:
            likely = _of_groups(likely, found, groups)
        found = (logarithm + power * likely).softmax(1)
    return found


def _of_groups(likely: Tensor, found: Tensor, groups: Tensor) -> Tensor:  # (B, C, H, W) each
    """Log-density of a pixel's colour under all classes of a group, each by its share."""
    together = likely.clone()
    for group in groups.unique():
        own = groups == group
        share = found[:, own].clamp_min(1e-9).log()
        mixed = (share + likely[:, own]).logsumexp(1, keepdim=True) - share.logsumexp(1, keepdim=True)
        together[:, own] = mixed.expand_as(share)
    return together


def roughness(labels: Tensor, num_classes: int) -> Tensor:  # (B, H, W) -> (B,)
    r"""How ragged the labels of each image are: the share of lonely pixels on its outlines.

    A pixel is on an outline if one of its eight neighbours has another label, and lonely if fewer than two have its
    own; the share is lonely / (outline + 20) pixels, so that a few of them prove nothing. Drawn outlines, good or bad,
    and even lines of one pixel leave hardly any (means of 0 to 0.015 on cardiac MRI, blood cells and nodules with seven
    kinds of noise); labels flipped pixel by pixel 0.04 (two classes, rate 0.4) to 0.35. A mask that has been enlarged
    is read at its own resolution. Pixels beside an ignored one and at the border of the image are left out; NaN for an
    image without outlines.

    >>> stripes = torch.zeros(1, 16, 16, dtype=torch.long)
    >>> stripes[:, :, 8:] = 1
    >>> roughness(stripes, 2)
    tensor([0.])
    """
    check_num_classes(num_classes)
    known = as_labels(labels, labels.shape, num_classes=num_classes)
    return torch.stack([_lonely_share(image) for image in known])


def _lonely_share(labels: Tensor) -> Tensor:  # (H, W) -> ()
    labels = at_own_resolution(labels)
    rows, columns = (max(0, size - 2) for size in labels.shape)
    middle = labels[1 : 1 + rows, 1 : 1 + columns]
    shifts = [(down, right) for down in range(3) for right in range(3) if (down, right) != (1, 1)]
    alike, judged = torch.zeros_like(middle, dtype=torch.uint8), middle != IGNORE
    for down, right in shifts:
        beside = labels[down : down + rows, right : right + columns]
        alike += beside == middle
        judged &= beside != IGNORE
    outline = (alike < len(shifts)) & judged
    pixels = outline.sum()
    lonely = (outline & (alike < 2)).sum()
    share = lonely / (pixels + _FEW_PIXELS)
    return torch.where(pixels > 0, share, torch.nan)


def at_own_resolution(labels: Tensor) -> Tensor:  # (H, W) -> (h, w)
    """The mask before its rows and columns were repeated to enlarge it, where that shows."""
    sides = [_ends_of_runs(labels), _ends_of_runs(labels.T)]
    if min(map(len, sides)) < _LEAST_CHANGES:  # a few straight edges say nothing
        return labels
    lengths = [[end - before for before, end in pairwise(ends)] for ends in sides]
    if any(min(runs) < max(runs) for runs in lengths) and all(map(_evenly_long, lengths)):
        kept = [_one_of_each_run(*side) for side in zip(sides, lengths, labels.shape, strict=True)]
        rows, columns = (torch.tensor(places, device=labels.device) for places in kept)
        return labels[rows[:, None], columns]
    step = min(map(min, lengths))
    return labels[::step, ::step]


def _ends_of_runs(labels: Tensor) -> list[int]:
    """Rows that differ from the next."""
    found: list[int] = (labels[1:] != labels[:-1]).any(1).nonzero().flatten().tolist()
    return found


def _evenly_long(runs: list[int]) -> bool:
    """Whether rows were repeated by one factor that need not be whole: no run ends a whole row off a straight line."""
    count, total = len(runs), sum(runs)
    if max(runs) - min(runs) > 1 or total < _LEAST_FACTOR * count or count < _LEAST_RUNS:
        return False
    return all(abs(end * count - total * number) < count for number, end in enumerate(accumulate(runs), start=1))


def _one_of_each_run(ends: list[int], runs: list[int], size: int) -> list[int]:
    """One row of each run, two of the first and of the last if these are longer: the border itself does not count."""
    first = [0] if ends[0] + 1 > max(runs) else []
    last = [size - 1] if size - 1 - ends[-1] > max(runs) else []
    return [*first, *ends, size - 1, *last]


def drawn(mean_roughness: float) -> bool:
    """Whether labels were drawn as outlines (their errors are shapes) or flipped pixel by pixel."""
    return mean_roughness < _MOST_ROUGH
