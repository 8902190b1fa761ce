"""What a method is: a module that owns a segmentation model and whatever it knows of the noise.

The engine calls a method, never the model: so a matrix, a prior or a teacher is moved, reduced over processes, saved
and resumed like any weight.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jcas.core import corrected_cross_entropy
from jcas.schema import Batch

AUXILIARY_WEIGHT = 0.1
"""Weight of the auxiliary classifier's loss, as in DeepLabV2's common training and in the released code."""


class Method(nn.Module):
    """Base of all methods; a subclass says how a batch becomes a loss.

    Args:
        model: maps images to `jcas.schema.Output`; see `jcas.models.build_model`.
        num_classes: classes, background included.
    """

    paper = ""
    """Citation, shown in tables."""

    needs = "labels only"
    """What it asks for besides a backbone, shown in tables."""

    network: str | None = None
    """Name of the network that belongs to the method and stands in for the run's encoder; None: any encoder.

    For the encoder ``tiny`` the network ``NAME:tiny`` stands in: the same structure with fewer channels.
    """

    repeat_threshold: float | None = None
    """Images of classes that fewer than this share of the images show are repeated; None: each image once."""

    told_wrong_shares: str | None = None
    """Option that `jcas benchmark` fills with the true share of wrong labels of each given class, where it is known.

    Of methods whose papers take it for granted.
    """

    trusted: frozenset[str] = frozenset()
    """Ids of images whose labels are known to be right; the engine fills it in from the dataset."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse what would be scored without its own prediction: runs `segment` windows, then `finish` the whole."""
        super().__init_subclass__(**options)
        if "predict" in cls.__dict__:
            raise TypeError(f"{cls.__name__} overrides predict, which a run never calls; override segment or finish")

    def __init__(self, model: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.model = model
        self.num_classes = num_classes

    @classmethod
    def model_options(cls, encoder: str, **options: Any) -> dict[str, Any]:
        """What this method, built with these options, wants `build_model` to add to a plain segmenter."""
        return {}

    @classmethod
    def schedule(cls, epochs: int) -> dict[str, Any]:
        """Options that follow from the length of a run where the user does not give them: warm-up, ramp."""
        return {}

    @classmethod
    def preset_options(cls, **options: Any) -> dict[str, Any]:
        """What options that are None stand for, given the others; shown in tables."""
        return {}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Scalar ``loss`` to minimise, and its parts under their own names."""
        raise NotImplementedError

    def segment(self, images: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, C, H, W)
        """Probabilities by the network at the size of the images, which may be windows of larger ones."""
        return resized(self.model(images).logits, images.shape[2:]).softmax(1)

    def consult(self, images: Tensor, probs: Tensor) -> Tensor:  # (B, channels, H, W), (B, C, H, W) -> (B, C, H, W)
        """What a method does to the probabilities of images as large as those it was trained on.

        Windows if the run has windows (``crop``), whole images if not, also where the network goes window by window.
        """
        return probs

    def finish(self, images: Tensor, probs: Tensor) -> Tensor:  # (B, channels, H, W), (B, C, H, W) -> (B, C, H, W)
        """What a method does to the probabilities of whole images, once they have been put together."""
        return probs

    def predict(self, images: Tensor) -> Tensor:  # (B, channels, H, W) -> (B, C, H, W)
        """Probabilities of the clean classes at the size of the images."""
        return self.finish(images, self.consult(images, self.segment(images)))

    def noise(self) -> Tensor:  # (C, C)
        """The class transition matrix that the method believes in now; the identity if it believes the labels."""
        return torch.eye(self.num_classes, device=next(self.parameters()).device)

    def matrices(self) -> dict[str, Tensor]:
        """What ``transition.json`` shows: any of ``class_transition``, ``affinity_transition``, ``prior``."""
        return {}

    def findings(self) -> dict[str, str]:
        """What the method has decided about the data so far, in a few words each: shown with every epoch."""
        return {}

    def validation_loss(self, batch: Batch, probs: Tensor) -> Tensor:
        """Cross-entropy of the noisy labels under the prediction carried through the noise: selects the epoch.

        Args:
            batch: whole images.
            probs: what `segment` and `consult` make of them, as in a test: window by window if the run has windows.
        """
        probs = self.finish(batch.image, probs)
        return corrected_cross_entropy(probs, batch.noisy, self.noise(), weight=batch.weight)

    @property
    def yardstick(self) -> str:
        """By what `validation_loss` measures now: losses are compared between epochs of the same yardstick only."""
        return ""

    @property
    def selectable(self) -> bool:
        """Whether the current epoch may be the one that is kept; False while a method still prepares."""
        return True

    def survey(self, masks: Iterable[Tensor]) -> None:  # (H, W) each
        """Called once before the first epoch, on every process, with training labels as they are stored.

        That is before anything resizes, crops or turns them: such labels show best how they were made.
        """

    def start_epoch(self, epoch: int) -> None:
        """Called before each training epoch (counted from 0), on every process."""

    def end_epoch(self, epoch: int) -> None:
        """Called after each training epoch, on every process."""

    def end_validation(self) -> None:
        """Called after the validation images of an epoch, which all came by as `validation_loss`, on every process."""

    def networks(self) -> list[nn.Module]:
        """The networks that are trained, the one that predicts first."""
        return [self.model]

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Trainable parameters by the learning rate they get: ``encoder``, ``heads`` and ``matrices``."""
        encoders = [p for net in self.networks() for p in net.get_submodule("encoder").parameters() if p.requires_grad]
        inside = {id(p) for p in encoders}
        heads = [p for net in self.networks() for p in net.parameters() if p.requires_grad and id(p) not in inside]
        inside |= {id(p) for p in heads}
        matrices = [p for p in self.parameters() if p.requires_grad and id(p) not in inside]
        return {"encoder": encoders, "heads": heads, "matrices": matrices}


class HeadLossMethod(Method):
    """A method that differs from the baseline in nothing but the loss of a head."""

    auxiliary_weight = AUXILIARY_WEIGHT

    def head_loss(self, logits: Tensor, batch: Batch) -> Tensor:  # (B, C, H, W) at the size of the labels -> ()
        """Loss of one head."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of the main head and, weighted, that of the auxiliary head."""
        output, size = self.model(batch.image), batch.noisy.shape[1:]
        parts = {"class_loss": self.head_loss(resized(output.logits, size), batch)}
        loss = parts["class_loss"]
        if output.auxiliary is not None:
            parts["auxiliary_loss"] = self.head_loss(resized(output.auxiliary.logits, size), batch)
            loss = loss + self.auxiliary_weight * parts["auxiliary_loss"]
        return {"loss": loss, **parts}


def resized(maps: Tensor, size: torch.Size | tuple[int, ...]) -> Tensor:
    """Maps (B, C, h, w) at another size, bilinearly; unchanged if they have it already."""
    if maps.shape[2:] == torch.Size(size):
        return maps
    return functional.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)


def resized_labels(labels: Tensor, size: torch.Size | tuple[int, ...]) -> Tensor:
    """Labels or weights (B, H, W) at another size, by the nearest pixel."""
    if labels.shape[1:] == torch.Size(size):
        return labels
    nearest = functional.interpolate(labels[:, None].float(), size=tuple(size), mode="nearest-exact")[:, 0]
    return nearest.to(labels.dtype)


def class_loss(logits: Tensor, batch: Batch, transition: Tensor, evidence: Tensor | None = None) -> Tensor:
    """Corrected cross-entropy of logits on any grid against the labels at full size."""
    probs = resized(logits, batch.noisy.shape[1:]).softmax(1)
    return corrected_cross_entropy(probs, batch.noisy, transition, evidence=evidence, weight=batch.weight)


def another_draw(model: nn.Module, *, seed: int) -> nn.Module:
    """A copy of an untrained model with other initial weights of the same distribution; pretrained encoders stay.

    Every tensor of weights is shuffled: its entries were drawn independently, so any order of them is as likely. That
    keeps whatever initialisation the model chose, which this function need not know.
    """
    copied = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    kept: set[int] = set()
    if getattr(model, "pretrained", False):
        kept = {id(p) for p in copied.get_submodule("encoder").parameters()}
    with torch.no_grad():
        for parameter in copied.parameters():
            if id(parameter) not in kept:
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return copied


def summed_over_processes(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all training processes (itself when there is one)."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        tensor = tensor.clone()
        torch.distributed.all_reduce(tensor)
    return tensor


def mean_over_processes(tensor: Tensor) -> Tensor:
    """The mean of a tensor over all training processes (itself when there is one)."""
    total = summed_over_processes(tensor)
    return total if total is tensor else total / torch.distributed.get_world_size()
