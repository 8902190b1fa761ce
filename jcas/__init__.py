"""Train medical image segmentation on masks nobody can trust, find the wrong masks, and repair them."""

from jcas.version import __version__

__all__ = ["__version__"]
