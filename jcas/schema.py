"""What flows between the rooms of the house: labels, samples, batches and model outputs."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

IGNORE = 255
"""Label of pixels that nobody judged: they take part in no loss, no count and no metric."""

_COLOURS = (
    (0, 0, 0), (78, 121, 167), (242, 142, 43), (225, 87, 89), (118, 183, 178), (89, 161, 79),
    (237, 201, 72), (176, 122, 161), (255, 157, 167), (156, 117, 95), (186, 176, 172),
)  # fmt: skip


def _colour(label: int) -> tuple[int, int, int]:
    """Of a class that has none of its own; beyond the palette hues a golden angle apart, every other one darker."""
    if label < len(_COLOURS):
        return _COLOURS[label]
    hue, lightness = label * 0.618034 % 1, (0.35, 0.6)[label % 2]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.65)
    return round(255 * red), round(255 * green), round(255 * blue)


@dataclass(frozen=True)
class LabelSpace:
    """The classes of a dataset: the index in ``names`` is the label id, id 0 is the background.

    >>> LabelSpace(("background", "vessel")).foreground
    ('vessel',)
    """

    names: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...] = ()
    ignore: int = IGNORE

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise ValueError(f"a label space needs at least two classes, got names={self.names!r}")
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"class names must differ, got names={self.names!r}")
        if not self.colours:
            object.__setattr__(self, "colours", tuple(_colour(i) for i in range(len(self.names))))
        if len(self.colours) != len(self.names):
            raise ValueError(f"{len(self.names)} classes but {len(self.colours)} colours")

    @property
    def num_classes(self) -> int:
        """Number of classes, background included."""
        return len(self.names)

    @property
    def foreground(self) -> tuple[str, ...]:
        """Names of all classes but the background."""
        return self.names[1:]


@dataclass(frozen=True)
class Sample:
    """One image with the labels to train on and, where they exist, the true ones (evaluation only)."""

    image: Tensor  # (channels, H, W) float32, 0..1
    noisy: Tensor  # (H, W) int64, 255 = ignore
    id: str
    clean: Tensor | None = None  # (H, W) int64
    weight: Tensor | None = None  # (H, W) float32, trust 0..1
    group: str = ""


@dataclass(frozen=True)
class Batch:
    """Samples of one size stacked; the training loader leaves ``clean`` out by construction."""

    image: Tensor  # (B, channels, H, W)
    noisy: Tensor  # (B, H, W)
    ids: tuple[str, ...]
    clean: Tensor | None = None  # (B, H, W)
    weight: Tensor | None = None  # (B, H, W)

    @classmethod
    def collate(cls, samples: list[Sample]) -> Batch:
        """Stack samples of equal size; a missing weight counts as full trust."""
        weight = clean = None
        if any(sample.weight is not None for sample in samples):
            weight = torch.stack([s.weight if s.weight is not None else torch.ones(s.noisy.shape) for s in samples])
        if all(sample.clean is not None for sample in samples):
            clean = torch.stack([s.clean for s in samples if s.clean is not None])
        return cls(
            image=torch.stack([s.image for s in samples]),
            noisy=torch.stack([s.noisy for s in samples]),
            ids=tuple(s.id for s in samples),
            clean=clean,
            weight=weight,
        )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on another device (Lightning calls this)."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device, non_blocking=non_blocking)

        return replace(
            self,
            image=self.image.to(device, non_blocking=non_blocking),
            noisy=self.noisy.to(device, non_blocking=non_blocking),
            clean=moved(self.clean),
            weight=moved(self.weight),
        )


@dataclass
class Output:
    """What a model says about a batch: coarse logits Q, pixel features f, and the same of its auxiliary head.

    Logits and features live on the model's own grid, which may be coarser than the image; methods resize.
    """

    logits: Tensor  # (B, C, h, w)
    features: Tensor | None = None  # (B, d, h, w); None when the model was built without a feature head
    auxiliary: Output | None = field(default=None)
