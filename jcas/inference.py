"""From a trained method to masks at the size of the images, and to scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from monai.inferers import sliding_window_inference
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn import functional

from jcas.config import Config
from jcas.data import Dataset, Record
from jcas.data.resize import resize_image
from jcas.methods import Method
from jcas.metrics import SegmentationScores

LARGEST_WHOLE = 1024
"""Images that no config resizes and that are larger than this on a side go through in windows."""

SMALLEST = 32
"""Below this side no network of ours works."""

WINDOW, OVERLAP = (512, 512), 0.25


def segment(method: Method, images: Tensor, config: Config) -> Tensor:  # (B, channels, H, W) -> (B, C, H, W)
    """Probabilities by `Method.segment` and `consult`. With ``crop``, and for large images, windows slide and overlap.

    Networks need a few pixels: smaller images get a border of their own edge, which is cut off again.
    """
    height, width = images.shape[2:]
    below, right = (max(0, SMALLEST - side) for side in (height, width))
    padded = functional.pad(images, (0, right, 0, below), mode="replicate") if below or right else images
    size = padded.shape[2:]
    window = config.crop or (WINDOW if max(size) > LARGEST_WHOLE else None)
    if window is None or all(side <= limit for side, limit in zip(size, window, strict=True)):
        probs = method.consult(padded, method.segment(padded))
    elif config.crop is None:  # no window that reaches beyond the image: the network has never seen such a border
        window = (min(window[0], size[0]), min(window[1], size[1]))
        probs = method.consult(padded, _by_windows(padded, window, method.segment))
    else:
        probs = _by_windows(padded, window, lambda part: method.consult(part, method.segment(part)))
    return probs[:, :, :height, :width]


def _by_windows(images: Tensor, window: tuple[int, int], predict: Callable[[Tensor], Tensor]) -> Tensor:
    found = sliding_window_inference(images, window, 4, predict, overlap=OVERLAP, mode="gaussian")
    assert isinstance(found, Tensor)
    return found


@torch.inference_mode()
def probabilities(method: Method, image: Tensor, config: Config) -> Tensor:  # (channels, H, W) -> (C, H, W)
    """Clean-class probabilities of one image at its own size, prepared as in training.

    With ``size`` the image is resized and the result resized back; see `segment` for windows. A method finishes the
    whole image, not its windows.
    """
    prepared = image if config.size is None else resize_image(image, config.size)
    batch = prepared[None].to(next(method.parameters()).device)
    probs = method.finish(batch, segment(method, batch, config))
    if probs.shape[2:] != image.shape[1:]:
        probs = functional.interpolate(probs, size=tuple(image.shape[1:]), mode="bilinear", align_corners=False)
    return probs[0].float().cpu()


def predict_records(
    method: Method, dataset: Dataset, records: Iterable[Record], config: Config
) -> Iterator[tuple[Record, Tensor, Tensor]]:
    """For each record: itself, its predicted mask (H, W) and its true mask (the given one where there is no other)."""
    method.eval()
    for record in records:
        sample = dataset.load(record, clean=True)
        assert sample.clean is not None
        yield record, probabilities(method, sample.image, config).argmax(0), sample.clean


def distance_unit(dataset: Dataset, split: str) -> str:
    """Unit of surface distances: ``mm`` where every image of the split is a slice of a volume, else ``pixels``."""
    records = dataset.split(split)
    return "mm" if records and all(dataset.pixel_size(record) is not None for record in records) else "pixels"


def score(
    method: Method,
    dataset: Dataset,
    split: str,
    config: Config,
    *,
    surface: bool = False,
    tolerance: float = 1.0,
    progress: bool = False,
) -> tuple[SegmentationScores, dict[str, Tensor]]:
    """Scores of a split at the images' own size, and the predicted masks by image id.

    With ``surface`` also distances within the image or slice, in the unit that `distance_unit` tells; ``tolerance``
    of the NSD is in the same unit.
    """
    scores = SegmentationScores(dataset.labels, surface=surface, tolerance=tolerance)
    masks: dict[str, Tensor] = {}
    records = dataset.split(split)
    in_millimetres = surface and distance_unit(dataset, split) == "mm"
    console = Console(stderr=True)
    shown = track(
        predict_records(method, dataset, records, config),
        total=len(records),
        description=f"scoring {dataset.name}",
        console=console,
        transient=True,
        disable=not progress or not console.is_terminal,
    )
    for record, predicted, truth in shown:
        scores.update(predicted, truth, record.id, spacing=dataset.pixel_size(record) if in_millimetres else None)
        masks[record.id] = predicted.to(torch.uint8)
    return scores, masks
