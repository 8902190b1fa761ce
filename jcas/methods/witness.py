"""A witness that sees the colour of a pixel and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.core import confusion_counts
from jcas.methods.base import summed_over_processes
from jcas.schema import IGNORE

WIDTH = 24
_MOST_PIXELS = 64 * 64  # that it learns from
_MOST_PIXELS_OF_CORES = 128 * 128
_LEAST_INFORMED = 1 / 4  # of 8 sets of labels: 0.33 to 0.4 with ellipses where colours tell; 0 to 0.14 where not
_CORE = 1 / 4  # of the pixels of objects
_MOST_DENIED = 1 / 4  # of the cores of objects: at most 0.18 where colours tell, from 0.3 on where they only seem to
_LEAST_COLOUR = 1 / 100  # of all variation: stained cells and synthetic instruments 0.09 to 0.14, grey images 0


class ColourWitness(nn.Module):
    r"""Names the class of a pixel from its colour among the colours of its image: :math:`V(c \mid I_i, I)`.

    Two 1x1 convolutions with instance normalisation. It sees neither place nor shape nor neighbours, so it cannot
    learn where somebody drew an outline or how far from a nucleus a model of another laboratory still believes in
    cytoplasm: of all pixels that look alike it can only learn what most of them are called.

    A stain names a class wherever it is; a grey does not. Where the heart lies over the lung of a radiograph it is as
    grey as the tissue beside it, and most of that grey is called background, rightly. Nothing in the labels tells this
    from red cells that somebody called cytoplasm, so it knows no class of images without colour
    (`colour_and_variation`).

    Args:
        channels: channels of the images.
        num_classes: classes, background included.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()

        def layer(inputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inputs, WIDTH, 1, bias=False), nn.GroupNorm(WIDTH, WIDTH), nn.ReLU(True))

        self.layers = nn.Sequential(layer(channels), layer(WIDTH), nn.Conv2d(WIDTH, num_classes, 1))
        self.counts: Tensor  # pixels by name and label
        self.taught: Tensor  # pixels by what was taught
        self.colour: Tensor  # variation of the pixels in colour, all of it
        self.cores: Tensor  # pixels of `object_cores`: all, named background
        self.fitting: Tensor  # pixels by class c, label (background, c) and colour (background's, c's own)
        self.known: Tensor
        self.distinct: Tensor
        self.denied: Tensor  # share of the cores of objects that it takes for background
        self.silenced: Tensor  # whether it has lost its say
        self.shares: Tensor  # of the classes in what was taught
        counters = {
            "counts": (num_classes, num_classes),
            "taught": (num_classes,),
            "fitting": (num_classes, 2, 2),
            "cores": (2,),
            "colour": (2,),
        }
        for name, shape in counters.items():  # counted anew in every epoch
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64), persistent=False)
        self.register_buffer("known", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("distinct", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("denied", torch.zeros((), dtype=torch.float64))
        self.register_buffer("silenced", torch.tensor(False))
        self.register_buffer("shares", torch.full((num_classes,), 1 / num_classes))

    def forward(self, image: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, C, H, W)
        """Logits of each pixel."""
        logits: Tensor = self.layers(image)
        return logits

    def lesson(self, image: Tensor, labels: Tensor, taught: Tensor) -> Tensor:
        """Cross-entropy with the classes ``taught`` (B, H, W); what it says is counted against the ``labels``."""
        step = thinning(labels, _MOST_PIXELS)
        fine = next(k for k in range(thinning(labels, _MOST_PIXELS_OF_CORES), step + 1) if step % k == 0)
        within = object_cores(labels[:, ::fine, ::fine])[:, :: step // fine, :: step // fine]
        image, labels, taught = (each[..., ::step, ::step] for each in (image, labels, taught))
        said = self(image)
        with torch.no_grad():
            self.colour += summed_over_processes(colour_and_variation(image).sum(0))
            classes = len(self.taught)
            named = said.max(1).indices
            self.counts += summed_over_processes(confusion_counts(named, labels, classes).sum(0))
            self.taught += summed_over_processes(torch.bincount(taught[taught != IGNORE], minlength=classes).double())
            self.fitting += summed_over_processes(self._fitting(said, labels))
            self.cores += summed_over_processes(torch.stack([within.sum(), (within & (named == 0)).sum()]).double())
        total = functional.cross_entropy(said, taught, ignore_index=IGNORE, reduction="sum")
        return total / (taught != IGNORE).sum().clamp_min(1)

    def start_epoch(self) -> None:
        """Forget the counts, not what follows from them."""
        for counts in (self.counts, self.taught, self.fitting, self.colour, self.cores):
            counts.zero_()

    def end_epoch(self, *, listened: bool) -> None:
        """Learn from the counts which classes it knows; an epoch without lessons changes nothing.

        Where it was ``listened`` to, its word has changed what it is taught: if it no longer deserves to be heard, it
        is not heard again. Else it would come and go, and take labels away in every other epoch.
        """
        spoke = listened and self.heard
        if bool(self.counts.any()):
            in_colour = self.colour[0] > _LEAST_COLOUR * self.colour[1]
            self.known.copy_(known_classes(self.counts) & in_colour)
            self.distinct.copy_(distinct_classes(self.fitting) & in_colour)
            self.denied.copy_(self.cores[1] / self.cores[0].clamp_min(1))
            self.shares.copy_(self.taught / self.taught.sum())
        self.silenced |= spoke and not self.heard

    @property
    def denies(self) -> bool:
        """Whether it takes the cores of objects for background.

        Labels are wrong near their outlines; their cores (`object_cores`) are mostly right. Who calls more than a
        quarter of them background does so because their colours are the background's, too, as with a polyp in mucosa.
        """
        return bool(self.denied > _MOST_DENIED)

    @property
    def heard(self) -> bool:
        """Whether it knows all classes and denies no object: who takes a wrist for a shaft may not object to either."""
        return bool(self.known.all()) and not self.denies and not bool(self.silenced)

    def confirmed(self, image: Tensor, labels: Tensor) -> Tensor:  # (B, H, W)
        """The labels that it would give, too; the others become 255 = ignore."""
        return torch.where(self(image).max(1).indices == labels, labels, IGNORE)

    def unlike_background(self, image: Tensor, labels: Tensor) -> Tensor:  # (B, H, W)
        r"""The labels without those whose colour is the background's rather than their own; these become 255 = ignore.

        .. math:: V(c \mid I_i) / r_c < V(0 \mid I_i) / r_0

        with the share r of a class in what was taught: such a colour is rarer among the pixels of class c than among
        those of the background. Only of `distinct_classes`; whoever takes a wrist for a shaft can still see that a
        pixel is neither. Labels of the background stand.
        """
        against = ~self._fits(self(image)) & self.distinct.view(1, -1, 1, 1)
        which = labels.clamp_max(len(self.distinct) - 1)  # 255 stays 255 whichever class is looked up
        return torch.where(against.gather(1, which[:, None])[:, 0], IGNORE, labels)

    def weighed(self, image: Tensor, probs: Tensor) -> Tensor:  # (B, channels, H, W), (B, C, H, W) -> (B, C, H, W)
        r"""Probabilities with what colours say for or against the background, at half their strength.

        .. math:: q_c \propto p_c \Bigl( \frac{1 - V(0 \mid I_i)}{1 - r_0} \Big/ \frac{V(0 \mid I_i)}{r_0} \Bigr)^{1/2}

        for the distinct classes c, beside :math:`q_0 \propto p_0`; together they keep what they had, and so do the
        others.
        """
        logits = self(image)
        odds = logits[:, 1:].logsumexp(1, keepdim=True) - logits[:, :1] + self.shares[0].logit(eps=1e-4)
        judged = self.distinct.clone()
        moved = (probs.clamp_min(1e-9).log() + odds / 2 * judged.view(1, -1, 1, 1)).float()
        judged[0] = True
        mass = probs[:, judged].sum(1, keepdim=True)
        found = probs.clone()
        found[:, judged] = (moved[:, judged].softmax(1) * mass).to(probs.dtype)
        return found

    def _fits(self, said: Tensor) -> Tensor:  # logits (B, C, H, W) -> (B, C, H, W) of bool
        """Where a colour is no rarer among the pixels of a class than among those of the background."""
        lifted = said - self.shares.clamp_min(1e-6).log().view(1, -1, 1, 1)
        return lifted >= lifted[:, :1]

    def _fitting(self, said: Tensor, labels: Tensor) -> Tensor:  # (C, 2, 2)
        fits = self._fits(said).long()
        found = torch.zeros_like(self.fitting)
        for c in range(1, len(found)):
            for side, label in enumerate((0, c)):
                found[c, side] = torch.bincount(fits[:, c][labels == label], minlength=2)
        return found


def thinning(maps: Tensor, most: int) -> int:  # (..., H, W)
    """The least k for which every k-th pixel of every k-th row are at most this many of an image."""
    step = 1
    while maps[..., ::step, ::step].shape[-2:].numel() > most:
        step += 1
    return step


def object_cores(labels: Tensor) -> Tensor:  # (B, H, W) -> (B, H, W) of bool
    """The innermost pixels of the objects of an image: outlines shrink by whole pixels while a quarter of them is left.

    What is labelled otherwise than background is one object, whatever its classes. The border of the image is no
    outline, nor is that of unknown pixels (255). Where no outline shrinks, as of thin lines, all is core.

    >>> drawn = [[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 1, 2, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0]]
    >>> object_cores(torch.tensor([drawn]))[0].int().tolist()
    [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]]
    """
    known, within = labels != IGNORE, labels != 0
    wanted = _CORE * (within & known).sum((1, 2), keepdim=True)
    while True:
        shrunk = _shrunk(_shrunk(within, 1), 2)
        shrunk = torch.where((shrunk & known).sum((1, 2), keepdim=True) >= wanted, shrunk, within)
        if torch.equal(shrunk, within):
            return within & known
        within = shrunk


def _shrunk(within: Tensor, axis: int) -> Tensor:  # (B, H, W) of bool
    """Without the pixels at both ends of each run along an axis; beyond the border all is within."""
    found, length = within.clone(), within.shape[axis] - 1
    found.narrow(axis, 0, length).logical_and_(within.narrow(axis, 1, length))
    found.narrow(axis, 1, length).logical_and_(within.narrow(axis, 0, length))
    return found


def colour_and_variation(image: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, 2) float64
    r"""How much the pixels of an image vary in colour rather than brightness, and how much they vary at all.

    .. math:: \operatorname{tr} M - \lambda_1(M), \quad \operatorname{tr} M - |\mu|^2, \qquad
              M = \frac1n \sum_i I_i I_i^T, \quad \mu = \frac1n \sum_i I_i

    with the largest eigenvalue of M: the first is their distance from the one ray through black that fits them best. It
    is 0 for grey images, also if these are stored in three channels or tinted by a factor for each.

    >>> grey = torch.rand(1, 1, 8, 8)
    >>> tinted = grey * torch.tensor([1.0, 0.6, 0.3]).view(1, 3, 1, 1)
    >>> colour_and_variation(torch.cat([tinted, torch.zeros(1, 3, 8, 8)])).round(decimals=6)[:, 0]
    tensor([0., 0.], dtype=torch.float64)
    """
    pixels = image.flatten(2).double()
    moments = pixels @ pixels.transpose(1, 2) / pixels.shape[2]
    total = moments.diagonal(dim1=1, dim2=2).sum(1)
    off_the_ray = (total - torch.linalg.eigvalsh(moments)[:, -1]).clamp_min(0)
    return torch.stack([off_the_ray, total - pixels.mean(2).square().sum(1)], 1)


def known_classes(counts: Tensor) -> Tensor:  # (C, C) pixels by name and label -> (C,) of bool
    r"""The classes that colour tells: named where they are labelled much more often than elsewhere.

    .. math:: P(\text{named } c \mid \text{labelled } c) - P(\text{named } c \mid \text{labelled otherwise}) > 1/4

    Somebody who calls every pixel background names all of the background and knows nothing about it. A class that
    nobody labels needs no knowing.

    >>> known_classes(torch.tensor([[90.0, 8.0], [0.0, 2.0]]))
    tensor([False, False])
    >>> known_classes(torch.tensor([[85.0, 2.0], [5.0, 8.0]]))
    tensor([True, True])
    """
    both, labelled, named = counts.diagonal(), counts.sum(0), counts.sum(1)
    elsewhere = (named - both) / (labelled.sum() - labelled).clamp_min(1)
    return (both / labelled.clamp_min(1) - elsewhere > _LEAST_INFORMED) | (labelled == 0)


def distinct_classes(fitting: Tensor) -> Tensor:  # (C, 2, 2) of `ColourWitness` -> (C,) of bool
    r"""The classes whose colours are not those of the background, as far as labels show.

    .. math:: P(\text{colour of } c \mid \text{labelled } c)
              - P(\text{colour of } c \mid \text{labelled background}) > 1/4
    """
    own = fitting[:, :, 1] / fitting.sum(2).clamp_min(1)
    return own[:, 1] - own[:, 0] > _LEAST_INFORMED
