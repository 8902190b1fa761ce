"""MTCL: a mean teacher whose confident objections correct the labels."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from jcas.methods.base import AUXILIARY_WEIGHT, Method, resized
from jcas.methods.confident import label_errors
from jcas.methods.losses import one_hot, soft_cross_entropy, soft_dice_loss, trust, trusted_mean
from jcas.schema import Batch


def corrected_labels(
    target: Tensor,  # (B, C, H, W) labels as distributions
    wrong: Tensor,  # (B, H, W) bool, labels found wrong
    believed: Tensor,  # (B, H, W) what they probably are
    amount: Tensor,  # (B, H, W) how much of the label to move, 0..1
) -> Tensor:  # (B, C, H, W)
    """Labels with a share of the mass of each wrong one moved to what is believed.

    >>> target = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> wrong, believed = torch.ones(1, 1, 1, dtype=torch.bool), torch.full((1, 1, 1), 2)
    >>> corrected_labels(target, wrong, believed, torch.full((1, 1, 1), 0.8)).flatten()
    tensor([0.2000, 0.0000, 0.8000])
    """
    share = (amount * wrong)[:, None]
    return (1 - share) * target + share * one_hot(believed, target.shape[1])


def rampup(epoch: int, length: int) -> float:
    """From exp(-5) up to 1 after ``length`` epochs (Laine & Aila, ICLR 2017)."""
    return math.exp(-5 * (1 - min(epoch, length) / length) ** 2) if length > 0 else 1.0


class MTCL(Method):
    r"""Mean teacher with confident learning: an average of past students says which labels are wrong, and how surely.

    Xu et al., Noisy Labels are Treasure: Mean-Teacher-Assisted Confident Learning for Hepatic Vessel Segmentation,
    MICCAI 2021.

    .. math:: L = L_s(\text{trusted}) + \lambda(e)\,[L_{cons}(\text{others}) + 5\,L_s(\text{others, corrected})],
              \qquad L_s = \tfrac12 (CE + Dice), \quad \lambda(e) = 0.1\,e^{-5 (1 - e / ramp)^2}

    The teacher is the moving average of the student (``decay`` 0.99). Labels that confident learning prunes under the
    teacher's probabilities (`label_errors`, over the batch) move towards the teacher's class by 1 - u, where u is the
    entropy (1 = uniform) of the mean of ``passes`` teacher passes over noisy input; ``amount`` is a fixed number
    instead. L_cons is the squared distance of the student to the teacher on noisy input (deviation ``input_noise``).
    Without trusted images (``trusted`` in dataset.yaml) every image is an "other" one whose loss has weight 1:
    labels as given for ``warmup`` epochs, corrected afterwards.

    Learns: the model; the teacher follows. All numbers are the paper's, among them ``consistency_weight`` 0.1 and
    ``corrected_weight`` 5 of the formula, but for the weight 1 without trusted images, which is ours; ``warmup`` (a
    fifth of the run) and ``ramp`` (three quarters) stand for its iteration counts. Differs from the original: any
    number of classes, of which Dice counts those that the labels show; soft labels stay soft (there a cast to integers
    deletes them); no focal and no boundary loss, which are meant for thin vessels; the batch is not drawn from two
    streams, so trusted images come as often as others. The student predicts.
    """

    paper = "Xu et al., MICCAI 2021"
    needs = "a teacher; trusted images if there are any"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        *,
        warmup: int = 5,
        ramp: int = 40,
        decay: float = 0.99,
        consistency_weight: float = 0.1,
        corrected_weight: float = 5.0,
        amount: float | None = None,
        passes: int = 4,
        input_noise: float = 0.1,
    ) -> None:
        super().__init__(model, num_classes)
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {decay}")
        if passes < 1:
            raise ValueError(f"passes must be at least 1, got {passes}")
        if amount is not None and not 0 <= amount <= 1:
            raise ValueError(f"amount must lie in [0, 1], got {amount}")
        self.warmup = warmup
        self.ramp = ramp
        self.decay = decay
        self.consistency_weight = consistency_weight
        self.corrected_weight = corrected_weight
        self.amount = amount
        self.passes = passes
        self.input_noise = input_noise
        self.teacher = copy.deepcopy(model).requires_grad_(False)
        self.epoch: Tensor
        self.step: Tensor
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @classmethod
    def schedule(cls, epochs: int) -> dict[str, Any]:
        """A fifth of the run warms up, consistency grows over three quarters of it."""
        return {"warmup": max(1, epochs // 5), "ramp": max(1, 3 * epochs // 4)}

    def start_epoch(self, epoch: int) -> None:
        """Remember the epoch, by which weights grow and correction starts."""
        self.epoch.fill_(epoch)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Supervision by given or corrected labels, and agreement with the teacher."""
        if self.training:
            self._follow()
        output, counts = self.model(batch.image), trust(batch.noisy, batch.weight)
        trusted = torch.tensor([id in self.trusted for id in batch.ids], device=counts.device)[:, None, None]
        others = ~trusted.expand_as(counts)
        student = resized(output.logits, batch.noisy.shape[1:])
        noisy_input = self._teacher_on_noise(batch.image)
        target = self._targets(batch, noisy_input, counts * others)
        growing = self.consistency_weight * rampup(int(self.epoch), self.ramp)
        apart = ((student.float().softmax(1) - noisy_input) ** 2).mean(1)
        parts = {"consistency": trusted_mean(apart, others.float())}  # needs no label
        supervised = counts * ~others if self.trusted else counts
        parts["class_loss"] = self._supervised(student, target, supervised)
        loss = parts["class_loss"] + growing * parts["consistency"]
        if self.trusted and self.correcting:
            parts["corrected_loss"] = self._supervised(student, target, counts * others)
            loss = loss + growing * self.corrected_weight * parts["corrected_loss"]
        if output.auxiliary is not None:
            auxiliary = resized(output.auxiliary.logits, batch.noisy.shape[1:])
            parts["auxiliary_loss"] = self._supervised(auxiliary, target, supervised)
            loss = loss + AUXILIARY_WEIGHT * parts["auxiliary_loss"]
        return {"loss": loss, **parts}

    @property
    def correcting(self) -> bool:
        """Whether the warm-up is over."""
        return int(self.epoch) >= self.warmup

    @staticmethod
    def _supervised(logits: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        dice = soft_dice_loss(logits.float().softmax(1), target, counts)
        return (soft_cross_entropy(logits, target, counts) + dice) / 2

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the teacher's weights towards the student's; the first ones are copied."""
        decay = min(1 - 1 / (int(self.step) + 1), self.decay)
        for slow, fast in zip(self.teacher.parameters(), self.model.parameters(), strict=True):
            slow.lerp_(fast, 1 - decay)
        self.step += 1

    @torch.no_grad()
    def _teacher_on_noise(self, images: Tensor) -> Tensor:
        """Teacher's probabilities of the images under fresh noise, clipped at two deviations."""
        noise = (torch.randn_like(images) * self.input_noise).clamp(-2 * self.input_noise, 2 * self.input_noise)
        return self._teacher_probabilities(images + noise)

    def _teacher_probabilities(self, images: Tensor) -> Tensor:
        return resized(self.teacher(images).logits, images.shape[2:]).float().softmax(1)

    @torch.no_grad()
    def _targets(self, batch: Batch, noisy_input: Tensor, doubtful: Tensor) -> Tensor:
        """Labels as distributions, the doubtful ones corrected once the warm-up is over."""
        target = one_hot(batch.noisy, self.num_classes)
        asked = doubtful > 0
        if not self.correcting or not asked.any():
            return target
        probs = self._teacher_probabilities(batch.image)
        wrong = torch.zeros_like(asked)
        wrong[asked] = label_errors(probs.movedim(1, -1)[asked], batch.noisy[asked])
        if self.amount is not None:
            amount = torch.full_like(doubtful, self.amount)
        else:
            mean = noisy_input
            for _ in range(self.passes - 1):
                mean = mean + self._teacher_on_noise(batch.image)
            mean = mean / self.passes
            entropy = -(mean * mean.clamp_min(1e-10).log()).sum(1)
            amount = (1 - entropy / math.log(self.num_classes)).clamp(0, 1)
        return corrected_labels(target, wrong, probs.argmax(1), amount)
