"""A witness that sees the colour of a pixel and nothing else."""

from __future__ import annotations

from torch import Tensor, nn

WIDTH = 24
_MOST_PIXELS = 64 * 64
_LEAST_INFORMED = 1 / 3


class ColourWitness(nn.Module):
    r"""Names the class of a pixel from its colour among the colours of its image: :math:`V(c \mid I_i, I)`.

    Two 1x1 convolutions with instance normalisation. It sees neither place nor shape nor neighbours, so it cannot
    learn where somebody drew an outline or how far from a nucleus a model of another laboratory still believes in
    cytoplasm: of all pixels that look alike it can only learn what most of them are called.

    Args:
        channels: channels of the images.
        num_classes: classes, background included.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()

        def layer(inputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(inputs, WIDTH, 1, bias=False), nn.GroupNorm(WIDTH, WIDTH), nn.ReLU(True))

        self.layers = nn.Sequential(layer(channels), layer(WIDTH), nn.Conv2d(WIDTH, num_classes, 1))

    def forward(self, image: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, C, H, W)
        """Logits of each pixel."""
        logits: Tensor = self.layers(image)
        return logits


def thinned(maps: Tensor) -> Tensor:  # (..., H, W) -> (..., h, w)
    """Every k-th pixel of every k-th row, at most about 64 x 64: enough to learn colours from."""
    step = 1
    while maps[..., ::step, ::step].shape[-2:].numel() > _MOST_PIXELS:
        step += 1
    return maps[..., ::step, ::step]


def known_classes(both: Tensor, labelled: Tensor, named: Tensor) -> Tensor:  # three (C,) counts -> (C,) of bool
    r"""The classes that colour tells: named where they are labelled much more often than elsewhere.

    .. math:: P(\text{named } c \mid \text{labelled } c) - P(\text{named } c \mid \text{labelled otherwise}) > 1/3

    Somebody who calls every pixel background names all of the background and knows nothing about it. A class that
    nobody labels needs no knowing.

    Args:
        both: pixels named and labelled c.
        labelled: pixels labelled c.
        named: pixels named c.

    >>> import torch
    >>> known_classes(torch.tensor([90.0, 2.0]), torch.tensor([90.0, 10.0]), torch.tensor([98.0, 2.0]))
    tensor([False, False])
    >>> known_classes(torch.tensor([85.0, 8.0]), torch.tensor([90.0, 10.0]), torch.tensor([87.0, 13.0]))
    tensor([True, True])
    """
    elsewhere = (named - both) / (labelled.sum() - labelled).clamp_min(1)
    return (both / labelled.clamp_min(1) - elsewhere > _LEAST_INFORMED) | (labelled == 0)
