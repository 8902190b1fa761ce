"""Label noise: ``noise(mask, rng) -> mask``, deterministic per (seed, image id) through `rng_for`.

>>> import numpy as np
>>> mask = np.zeros((4, 4), np.uint8)
>>> NOISES["symmetric"](num_classes=2, rate=0.5)(mask, rng_for(0, "image-1")).shape
(4, 4)
"""

from jcas.noise.base import Noise, rng_for
from jcas.noise.boundary import DilateErode, Markov, Polygon
from jcas.noise.ellipse import Ellipse
from jcas.noise.flip import Asymmetric, Matrix, PairFlip, Symmetric
from jcas.noise.pseudo import Pseudo

NOISES: dict[str, type[Noise]] = {
    "symmetric": Symmetric,
    "asymmetric": Asymmetric,
    "pair_flip": PairFlip,
    "matrix": Matrix,
    "ellipse": Ellipse,
    "dilate_erode": DilateErode,
    "markov": Markov,
    "polygon": Polygon,
    "pseudo": Pseudo,
}
"""Every noise by its name; to add one, write its file and its line here."""

__all__ = [
    "NOISES",
    "Asymmetric",
    "DilateErode",
    "Ellipse",
    "Markov",
    "Matrix",
    "Noise",
    "PairFlip",
    "Polygon",
    "Pseudo",
    "Symmetric",
    "rng_for",
]
