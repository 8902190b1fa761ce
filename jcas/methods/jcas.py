"""JCAS: the paper's method with its switches, as corrected by us and as released."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from jcas.core import (
    Affinity,
    FreeTransitionMatrix,
    TransitionMatrix,
    class_affinity_consistency,
    class_to_affinity,
    corrected_affinity_loss,
    corrected_cross_entropy,
    neighbour_evidence,
    refine,
    volume,
)
from jcas.methods.base import AUXILIARY_WEIGHT, Method, class_loss, resized, resized_labels
from jcas.methods.image_evidence import ImageEvidence
from jcas.methods.losses import generalised_cross_entropy
from jcas.methods.noise_counts import NoiseCounts
from jcas.methods.recipe import chosen_recipe
from jcas.schema import IGNORE, Batch, Output

WARMUP_Q = 0.7
"""Exponent of the generalised cross-entropy that warms up on flipped labels, as its paper has it."""

_LEAST_SHARE = 1e-4  # of a class, by which its pairs are weighed
_LEAST_RELEASED_STRIDE = 6  # image pixels per pixel of a map: the released network has 8, or a little less by padding


class JCAS(Method):
    r"""Joint class-affinity segmentation: correct labels pixel by pixel and pair by pair, and make the two agree.

    Guo & Yuan, Joint Class-Affinity Loss Correction, MICCAI 2022.

    .. math:: L = L^C_{LC}(P) + L^C_{LC}(Q) + L^A_{LC} \;(+\; \mu \log|\det T_C| + \lambda L_{CACR} \text{ if learned})

    with refined logits :math:`P = Q + \frac12 (P'Q - P'_{re}Q)`, and P = Q on labels that are seen to be flipped
    (``dar_of_flips``). Learns: the model; and of the noise T_C (C x C) and T_A (2 x 2), by counting or by gradient.

    The first ``warmup`` epochs (three tenths of a run) train no pairs and correct nothing. From the last of them on
    every epoch counts the model's predictions against the labels (`counts_by_certainty`): the shares of the classes are
    the prior N, the labels of the surest quarter of each class (`surest_share`), rows normalised
    (`counted_transition`), are T_C, and Theorem 1 gives T_A. ``consistency_weight=0`` lets T_A be counted on its own
    instead. With ``learned_matrices=True`` (the paper's way) both are learned by gradient beside a volume term of
    weight ``volume_weight`` (1e-3 is ours; 1e-4 VolMin's, in `paper`; 0.5 the released code's), and
    ``consistency_weight`` (0.01, the paper's) weighs L_CACR.

    Labels as they are stored tell of which kind they are (`survey`, `roughness`). On labels that were flipped one
    by one the warm-up takes generalised cross-entropy (``robust_warmup``; `generalised_cross_entropy` with q =
    0.7), so that the model which is counted first has followed fewer of them. Afterwards each label is a witness
    for its neighbours, too (``neighbours``): the class losses hear a pixel's own label and the eight around it
    (`neighbour_evidence`),

    .. math:: L^C_{LC}(P) = -\frac1K \sum_i \log \sum_c P_i(c)\, T_C(c, \tilde y_i)\, E_i(c)

    and T_C is counted against predictions with the word of their neighbours. A rare class whose labels are mostly
    flipped background may be found by them. Pairs of flipped labels teach features that the encoder shares, and no
    more: DAR, trained and used on them, cost where noisy validation labels were asked (docs/DEVELOPMENT.md).

    No matrix explains a habit of those who draw, and a network learns it like any shape. To labels that were `drawn`
    the image may object (``appearance``). A `ColourWitness` (``witness``) learns to name classes by colour alone, first
    from the labels, then from the predictions; if images have colours and it knows all classes (`known_classes`) and
    does not take cores of objects for background, labels stand where it names them. If not, a label is set aside where
    image, model and label together (`repaired`) name another class (`unchallenged`), and outlines that are too wide all
    over the dataset are moved (``outline_bias``, `OutlineBias`). If looks do not tell touching classes apart, either,
    labels whose colour is the background's are set aside (`ColourWitness.unlike_background`). Who objects has a say in
    the prediction, too (looks between groups of classes that look alike, `look_groups`); appearance also if labels were
    flipped and those of validation images show a gain (`estimated_jaccard`).
    Labels are never replaced: the model cannot talk itself into anything. T_C is counted over all pixels. It corrects
    drawn labels, and pairs take part, only while no habit is seen, as with labels of several readers: no witness is
    heard, outlines seem right (`OutlineBias.right`), and labels are no ellipses (`count_ellipses`); these pairs begin
    no later than in epoch ``latest_pairs``, which leaves them as long as the warm-up. T_C of drawn labels is counted on
    validation images where there are any: those of the training are learned by heart. Of labels with a habit T_C would
    forgive what the image objects to.

    Ablations of the paper: ``affinity``, ``intra``, ``inter``, ``correct_class``, ``correct_affinity``,
    ``consistency_weight=0``. ``preset`` chooses between our reading (``corrected``), the paper's (``paper``) and the
    released code with its quirks (``released``): docs/PAPER.md lists every difference, docs/METHOD.md explains ours.
    ``appearance`` (of it ``screening`` of labels and ``refinement`` of predictions), ``witness``, ``outline_bias``,
    ``neighbours``, ``robust_warmup``, ``most_pairs``, ``learned_matrices``, ``volume_weight``, ``cosine_reverse``,
    ``separate_refinement``, ``dar_of_flips`` and ``balanced_pairs`` override it; ours has all of them but
    ``learned_matrices``, ``dar_of_flips`` and ``balanced_pairs``. With the last a pixel counts by 1 / N of the class
    that the model believes in, and T_A follows from T_C and even shares: all classes have the same part in the pairs
    (weights by noisy labels would bend T_A). ``training_grid`` and ``test_grid`` (rows, columns) put the affinities on
    another grid than that of the features.

    Differs from the original: matrices are counted, for learned ones run away or stop short; Theorem 1 has another
    numerator, for the printed one leaves [0, 1]; the reverse map is norm(1 - cosine), for norm(1 - P') is almost
    constant; the loss of P teaches affinities alone (``separate_refinement``; but that of an auxiliary head, as
    released), for Q has a loss of its own; flipped labels go without DAR; the warm-up trains no pairs and is a part of
    the run (there a stage of the same length; a class not found when the counting starts may never be); at most
    ``most_pairs`` are drawn per image (65,536 is ours, all of a grid of 16 x 16; there all, which cost O(n^2)); DAR
    runs on the grid of the features and its correction is added at that of the logits, so that a coarse grid does not
    blur a fine prediction; the robust warm-up (its loss is that of Zhang & Sabuncu, NeurIPS 2018) and what neighbours
    and the image say are ours. Memory O(n d).
    """

    paper = "Guo & Yuan, MICCAI 2022"
    needs = "pixel features"

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        *,
        preset: str = "corrected",
        warmup: int = 5,
        latest_pairs: int | None = None,
        affinity: bool = True,
        intra: bool = True,
        inter: bool = True,
        correct_class: bool = True,
        correct_affinity: bool = True,
        consistency_weight: float = 0.01,
        appearance: bool | None = None,
        screening: bool | None = None,
        refinement: bool | None = None,
        witness: bool | None = None,
        outline_bias: bool | None = None,
        neighbours: bool | None = None,
        robust_warmup: bool | None = None,
        most_pairs: int | None = None,
        training_grid: tuple[int, int] | None = None,
        test_grid: tuple[int, int] | None = None,
        learned_matrices: bool | None = None,
        volume_weight: float | None = None,
        cosine_reverse: bool | None = None,
        separate_refinement: bool | None = None,
        dar_of_flips: bool | None = None,
        balanced_pairs: bool | None = None,
    ) -> None:
        super().__init__(model, num_classes)
        overrides: dict[str, Any] = {
            "appearance": appearance,
            "screening": screening,
            "refinement": refinement,
            "witness": witness,
            "outline_bias": outline_bias,
            "neighbours": neighbours,
            "robust_warmup": robust_warmup,
            "most_pairs": most_pairs,
            "training_grid": training_grid,
            "test_grid": test_grid,
            "learned_matrices": learned_matrices,
            "volume_weight": volume_weight,
            "cosine_reverse": cosine_reverse,
            "separate_refinement": separate_refinement,
            "dar_of_flips": dar_of_flips,
            "balanced_pairs": balanced_pairs,
        }
        given = {name: value for name, value in overrides.items() if value is not None}
        recipe = replace(chosen_recipe(preset), **given)
        for name, needed in (
            ("screening", "appearance"),
            ("refinement", "appearance"),
            ("witness", "appearance"),
            ("outline_bias", "appearance"),
            ("neighbours", "appearance"),
            ("robust_warmup", "appearance"),
            ("volume_weight", "learned_matrices"),
        ):
            if overrides[name] and not getattr(recipe, needed):
                raise ValueError(f"{name} does nothing without {needed}")
        if neighbours and (recipe.learned_matrices or not correct_class):
            raise ValueError("neighbours does nothing without a counted T_C that corrects the loss")
        if balanced_pairs and (recipe.learned_matrices or not (affinity and correct_affinity and consistency_weight)):
            raise ValueError("balanced_pairs does nothing without a T_A that follows from a counted T_C")
        if warmup < 0:
            raise ValueError(f"warmup must not be negative, got {warmup}")
        if robust_warmup and not warmup:
            raise ValueError("robust_warmup does nothing without a warmup")
        if most_pairs is not None and most_pairs < 1:
            raise ValueError(f"most_pairs must be at least 1, got {most_pairs}")
        for name, grid in (("training_grid", training_grid), ("test_grid", test_grid)):
            if grid is not None and min(grid) < 1:
                raise ValueError(f"{name} must have at least one row and one column, got {grid}")
        self.recipe = recipe
        self.warmup = warmup
        self.latest_pairs = latest_pairs
        self.affinity = affinity
        self.intra = intra and affinity
        self.inter = inter and affinity
        self.correct_class = correct_class
        self.correct_affinity = correct_affinity
        self.consistency_weight = consistency_weight
        for name, given_option in (("separate_refinement", separate_refinement), ("dar_of_flips", dar_of_flips)):
            if given_option and not (self.intra or self.inter):
                raise ValueError(f"{name} does nothing without intra or inter")
        if recipe.learned_matrices:
            self.class_matrix = TransitionMatrix(num_classes)
            self.affinity_matrix = FreeTransitionMatrix(2) if recipe.free_affinity_matrix else TransitionMatrix(2)
        self.epoch: Tensor
        self.pairs_of_drawn: Tensor
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))
        self.register_buffer("pairs_of_drawn", torch.tensor(False))  # whether this epoch trains them
        self.counts = NoiseCounts(num_classes, tied=bool(consistency_weight))
        self.evidence: ImageEvidence | None = None
        if recipe.appearance:
            channels = _channels(model) if recipe.witness else 1
            self.evidence = ImageEvidence(
                num_classes,
                channels=channels if channels > 1 else None,  # one channel has no colours
                screening=recipe.screening,
                refinement=recipe.refinement,
                moves_outlines=recipe.outline_bias,
            )
        self._sees_kind = self._sees_agreement = recipe.appearance  # the first epoch comes by all labels
        if recipe.released_network:
            _freeze_early_layers(model)

    @classmethod
    def model_options(cls, encoder: str, **options: Any) -> dict[str, Any]:
        """A feature head when pairs are used; the released network for the released preset."""
        recipe = chosen_recipe(options.get("preset", "corrected"))
        if not options.get("affinity", True):
            return {}
        if not recipe.released_network:
            return {"feature_dim": recipe.feature_dim}
        released = {"feature_dim": recipe.feature_dim, "auxiliary_features": True, "head": "released"}
        if encoder.startswith("resnet"):  # the released code knows no other encoder
            released |= {"released_dilations": True, "released_encoder": True, "freeze_bn_affine": True}
        return released

    @classmethod
    def schedule(cls, epochs: int) -> dict[str, Any]:
        """Three tenths of the run warm up: a class not yet found when the counting starts may never be.

        Features of pairs need as long to be learned: where less is left, pairs of drawn labels do not begin.
        """
        warmup = max(1, round(0.3 * epochs))
        return {"warmup": warmup, "latest_pairs": epochs - warmup}

    @classmethod
    def preset_options(cls, **options: Any) -> dict[str, Any]:
        """Those of the preset."""
        return asdict(chosen_recipe(options.get("preset", "corrected")))

    # --- noise ---------------------------------------------------------------------------------------------------

    @property
    def warming_up(self) -> bool:
        """Whether the current epoch still corrects nothing."""
        return int(self.epoch) < self.warmup

    @property
    def first_count(self) -> int:
        """The first epoch whose predictions are counted: the last of the warm-up."""
        return max(self.warmup - 1, 0)

    @property
    def selectable(self) -> bool:
        """The warm-up only prepares."""
        return not self.warming_up

    @property
    def yardstick(self) -> str:
        """Who objects to labels and refines predictions decides which labels count, and how easily they are met."""
        if self.evidence is None or not self.image_objects:
            return super().yardstick
        return self.evidence.yardstick

    @property
    def image_objects(self) -> bool:
        """Whether the labels have turned out to be drawn, so that the image may object to them."""
        return self.evidence is not None and not self.warming_up and self.counts.of_drawn_labels

    @property
    def uses_pairs(self) -> bool:
        """Whether pairs are trained: not in the warm-up, and of drawn labels only where no habit is seen.

        Pairs across an outline that is wrong by habit are wrong like its pixels, and no matrix tells how often.
        """
        if not self.affinity:
            return False
        if self.image_objects:
            return bool(self.pairs_of_drawn)
        return not self.warming_up or self.recipe.affinity_in_warmup

    @property
    def _no_habit_seen(self) -> bool:
        """Neither in outlines nor in shapes: who draws ellipses has one wherever outlines lie on average."""
        return self.evidence is not None and self.evidence.no_habit_seen and not self.counts.of_ellipses

    @property
    def corrects_class(self) -> bool:
        """Whether T_C corrects the loss: of flipped labels, and of drawn ones without a habit.

        A habit, like outlines that are too wide everywhere, is no chance that befalls pixels: T_C would forgive it.
        """
        if self.warming_up or not self.correct_class:
            return False
        return not self.image_objects or self._no_habit_seen

    @property
    def neighbours_speak(self) -> bool:
        """Whether labels nearby have a say: of labels flipped one by one each is a witness of its own."""
        counted = self.recipe.neighbours and not self.recipe.learned_matrices
        return counted and self.corrects_class and self.counts.of_flipped_labels

    @property
    def warms_up_robustly(self) -> bool:
        """Whether the loss of this epoch is the robust one: in the warm-up, as far as labels turn out to be flipped."""
        return self.recipe.robust_warmup and self.warming_up and self.counts.of_flipped_labels

    def noise(self) -> Tensor:
        """T_C where it corrects the loss, the identity elsewhere."""
        if not self.corrects_class:
            return super().noise()
        return self.class_transition

    @property
    def class_transition(self) -> Tensor:
        """T_C, learned or counted, whether it corrects anything or not."""
        return self.class_matrix() if self.recipe.learned_matrices else self.counts.class_transition

    def pair_noise(self) -> Tensor:
        """T_A where the loss is corrected by it, the identity elsewhere."""
        if self.warming_up or not self.uses_pairs or not self.correct_affinity:
            return torch.eye(2, device=self.counts.prior.device)
        return self.affinity_transition

    @property
    def affinity_transition(self) -> Tensor:
        """T_A, learned or counted, whether it corrects anything or not; of balanced pairs that of even shares."""
        if self.recipe.learned_matrices:
            return self.affinity_matrix()
        if self.recipe.balanced_pairs:
            return class_to_affinity(self.counts.class_transition, torch.ones_like(self.counts.prior))
        return self.counts.pair_transition

    def matrices(self) -> dict[str, Tensor]:
        """T_C, T_A and N."""
        found = {"prior": self.counts.prior}
        if self.correct_class:
            found["class_transition"] = self.class_transition
        if self.affinity and self.correct_affinity:
            found["affinity_transition"] = self.affinity_transition
        return found

    def findings(self) -> dict[str, str]:
        """Which kind of labels it has, what refines predictions and moves outlines, how many labels are set aside."""
        rough, drawn = self.counts.mean_roughness, self.counts.of_drawn_labels
        if self.evidence is None or rough is None:
            return {}
        kind = "drawn as ellipses" if self.counts.of_ellipses else "drawn" if drawn else "flipped"
        found = {"labels": f"{kind} (roughness {rough:.3f})"}
        if self.warming_up:
            return found | ({"warm-up": "robust"} if self.warms_up_robustly else {})
        found |= self.evidence.findings(drawn=drawn)
        if self.image_objects and self.corrects_class:
            found["noise"] = "no habit seen, T_C corrects it"
        if self.neighbours_speak:
            apart = self.counts.reach
            found["neighbours"] = "heard" if apart == 1 else f"heard, {apart} pixels apart"
        return found

    def survey(self, masks: Iterable[Tensor]) -> None:
        """See of which kind the labels are."""
        if self.evidence is not None:
            for mask in masks:
                self.counts.add_kind(mask[None].to(self.counts.prior.device), everywhere_the_same=True)

    def start_epoch(self, epoch: int) -> None:
        """Enter the stage of this epoch and start its counts."""
        self.epoch.fill_(epoch)
        self._sees_kind = self.evidence is not None and self.counts.mean_roughness is None
        self._sees_agreement = self.evidence is not None and not bool(self.counts.agreement.any())
        begun = bool(self.pairs_of_drawn) or self.latest_pairs is None or epoch <= self.latest_pairs
        # Not later: a prediction must not ask features nobody trained.
        self.pairs_of_drawn.fill_(begun and self._no_habit_seen)
        self.counts.start_epoch()
        if self.evidence is not None:
            self.evidence.start_epoch()

    def end_epoch(self, epoch: int) -> None:
        """Turn the epoch's counts into prior and matrices (learned ones take only the prior, and only once)."""
        if self.evidence is not None:
            self.evidence.end_epoch(listened=self.image_objects)
        if self.counts.empty:
            return
        if not self.recipe.learned_matrices:
            self.counts.believe_training()
        elif epoch == self.first_count:
            pixels = self.counts.everywhere.sum(0 if self.recipe.prior_from_labels else 1)
            self.counts.prior.copy_(pixels / pixels.sum())
            if isinstance(self.affinity_matrix, FreeTransitionMatrix):
                implied = class_to_affinity(self.class_matrix().detach(), self.counts.prior)
                self.affinity_matrix.weight.data.copy_(implied.clamp_min(1e-4).log())

    # --- training ------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The joint loss; reads top to bottom as the paper's Fig. 2 does."""
        if self._sees_kind:  # nobody showed the masks as they are stored
            self.counts.add_kind(_weighed_labels(batch))
        if self._sees_agreement:
            self.counts.add_agreement(_weighed_labels(batch))
        output = self.model(batch.image)
        if int(self.epoch) >= self.first_count:
            self._count(output.logits, batch)
        lesson = self._taught_witness(output.logits, batch)
        if self.image_objects:
            batch = self._screened(batch, resized(output.logits, batch.noisy.shape[1:]).softmax(1))
        said = self._said_nearby(output.logits, batch)
        with_pairs = self.uses_pairs
        if not with_pairs:
            parts = {"class_loss": self._class_loss(output.logits, batch, said)}
            loss = parts["class_loss"]
        else:
            pairs = self._affinity(output, batch.image)
            of_coarse, pair_weight = self._class_loss(output.logits, batch, said), self.recipe.main_affinity_weight
            if self._refines:
                coarse = output.logits.detach() if self.recipe.separate_refinement else output.logits
                of_refined = self._class_loss(self._refined(coarse, pairs), batch, said)
                parts = {"coarse_loss": of_coarse, "class_loss": of_refined}
                loss = of_refined + of_coarse
            else:  # P is Q and has one loss; pairs keep their part of the whole
                parts, loss, pair_weight = {"class_loss": of_coarse}, of_coarse, pair_weight / 2
            parts["affinity_loss"] = self._pair_loss(pairs, batch, output.logits)
            loss = loss + pair_weight * parts["affinity_loss"]
        if output.auxiliary is not None:
            auxiliary_logits = output.auxiliary.logits
            if with_pairs and output.auxiliary.features is not None:
                pairs = self._affinity(output.auxiliary, batch.image)
                auxiliary_logits = self._refined(auxiliary_logits, pairs)
                parts["auxiliary_affinity_loss"] = self._pair_loss(pairs, batch, output.logits)
                loss = loss + self.recipe.auxiliary_affinity_weight * parts["auxiliary_affinity_loss"]
            parts["auxiliary_loss"] = self._class_loss(auxiliary_logits, batch, said)
            loss = loss + AUXILIARY_WEIGHT * parts["auxiliary_loss"]
        if self.recipe.learned_matrices and not self.warming_up and (self.corrects_class or not self.image_objects):
            loss = loss + self._matrix_terms(parts)
        if lesson is not None:
            parts["witness_loss"] = lesson
            loss = loss + lesson
        return {"loss": loss, **parts}

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """As always; the witness learns at the rate of the heads."""
        groups = super().parameter_groups()
        inside = set() if self.evidence is None else {id(p) for p in self.evidence.parameters()}
        groups["heads"] += [p for p in groups["matrices"] if id(p) in inside]
        groups["matrices"] = [p for p in groups["matrices"] if id(p) not in inside]
        return groups

    def _taught_witness(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """The witness's own loss: in the warm-up on the labels, then on what the model has made of them."""
        if self.evidence is None or self.evidence.witness is None or not (self.warming_up or self.image_objects):
            return None
        if self.counts.of_flipped_labels:  # of which colours tell nothing that is asked for
            return None
        labels = taught = _weighed_labels(batch)
        if not self.warming_up:
            believed = resized(logits.detach(), labels.shape[1:]).max(1).indices
            taught = torch.where(labels == IGNORE, IGNORE, believed)
        return self.evidence.witness.lesson(batch.image, labels, taught)

    def _screened(self, batch: Batch, probs: Tensor) -> Batch:
        """The batch without the drawn labels that the image objects to; those that are known to be right stand."""
        assert self.evidence is not None
        labels = _weighed_labels(batch)
        standing = self.evidence.standing(batch.image, labels, probs)
        known = torch.tensor([image in self.trusted for image in batch.ids], device=labels.device)[:, None, None]
        return replace(batch, noisy=torch.where(known, labels, standing))

    def _class_loss(self, logits: Tensor, batch: Batch, said_nearby: Tensor | None) -> Tensor:
        """Of any head: corrected by the noise, or robust in the warm-up on flipped labels."""
        if not self.warms_up_robustly:
            return class_loss(logits, batch, self.noise(), said_nearby)
        probs = resized(logits, batch.noisy.shape[1:]).float().softmax(1)
        return generalised_cross_entropy(probs, batch.noisy, q=WARMUP_Q, weight=batch.weight)

    def _pair_loss(self, pairs: Affinity, batch: Batch, logits: Tensor) -> Tensor:
        noisy = resized_labels(batch.noisy, pairs.spatial)
        weight = None if batch.weight is None else resized_labels(batch.weight, pairs.spatial)
        if self.recipe.balanced_pairs and not self.warming_up:
            rarity = 1 / self.counts.prior.clamp_min(_LEAST_SHARE)
            of_pixels = (rarity / rarity.max())[resized(logits.detach(), pairs.spatial).max(1).indices]
            weight = of_pixels if weight is None else weight * of_pixels
        most = None if self.recipe.most_pairs is None else self.recipe.most_pairs * len(noisy)
        return corrected_affinity_loss(pairs, noisy, self.pair_noise(), weight=weight, max_pairs=most)

    def _matrix_terms(self, parts: dict[str, Tensor]) -> Tensor:
        """Volume and consistency; adds them to ``parts`` and returns their weighted sum."""
        total = self.counts.prior.new_zeros(())
        correct_pairs = self.affinity and self.correct_affinity
        if self.correct_class:
            parts["volume"] = volume(self.class_matrix())
            if self.recipe.released_network and correct_pairs:
                parts["volume"] = parts["volume"] + volume(self.affinity_matrix())
            total = total + self.recipe.volume_weight * parts["volume"]
        if self.correct_class and correct_pairs and self.consistency_weight:
            pair_transition = self.affinity_matrix()
            if self.recipe.crossed_consistency:
                pair_transition = pair_transition.flip(0, 1)
            parts["consistency"] = class_affinity_consistency(self.class_matrix(), pair_transition, self.counts.prior)
            total = total + self.consistency_weight * parts["consistency"]
        return total

    @torch.no_grad()
    def _count(self, logits: Tensor, batch: Batch) -> None:
        """Add this batch's predictions against its labels to the counts.

        Where neighbours speak, predictions with their word, on a grid on which labels do not repeat each other: a
        label must not confirm itself.
        """
        labels, size = _weighed_labels(batch), logits.shape[2:]
        speak = self.neighbours_speak
        if speak:
            step = max(2, self.counts.reach)
            size = torch.Size(-(-side // step) for side in labels.shape[1:])
        probs, on_grid = resized(logits, size).float().softmax(1), resized_labels(labels, size)
        weight = None if batch.weight is None else resized_labels(batch.weight, size)
        if speak:
            probs = probs * neighbour_evidence(probs, on_grid, self.counts.class_transition, weight=weight)
            probs = probs / probs.sum(1, keepdim=True)
        elif self.evidence is not None:
            probs = self.evidence.unbiased(probs)
        self.counts.add(probs, on_grid, weight)

    @torch.no_grad()
    def _said_nearby(self, logits: Tensor, batch: Batch) -> Tensor | None:  # (B, C, H, W)
        """What labels nearby say about each pixel; None if they have no say."""
        if not self.neighbours_speak:
            return None
        labels = _weighed_labels(batch)
        probs = resized(logits, labels.shape[1:]).softmax(1)
        transition, reach = self.counts.class_transition, self.counts.reach
        return neighbour_evidence(probs, labels, transition, weight=batch.weight, reach=reach)

    # --- refinement and prediction -------------------------------------------------------------------------------

    def _affinity(self, output: Output, images: Tensor, *, at_test: bool = False) -> Affinity:
        """Affinities on the grid of the features, on one of a given size or, as released, on a part of the image's.

        The latter only where features have an eighth of the image's side, as the released ones, or are coarser.
        """
        assert output.features is not None, "the model was built without a feature head"
        recipe, sides = self.recipe, images.shape[2:]
        grid = recipe.test_grid if at_test else recipe.training_grid
        stride = recipe.test_stride if at_test else recipe.training_stride
        if grid is None and stride and sides[0] >= _LEAST_RELEASED_STRIDE * output.features.shape[2]:
            grid = max(1, sides[0] // stride[0]), max(1, sides[1] // stride[1])
        return Affinity(output.features if grid is None else resized(output.features, grid))

    @property
    def _refines(self) -> bool:
        """Whether DAR takes part: of flipped labels only if asked for, because their class loss says all they know."""
        return (self.intra or self.inter) and (self.recipe.dar_of_flips or not self.counts.of_flipped_labels)

    def _refined(self, coarse: Tensor, pairs: Affinity) -> Tensor:
        if not self._refines:
            return coarse
        on_grid = resized(coarse, pairs.spatial)
        refined = refine(on_grid, pairs, self.intra, self.inter, cosine_reverse=self.recipe.cosine_reverse)
        if on_grid is coarse or self.recipe.released_network:
            return refined
        return coarse + resized(refined - on_grid, coarse.shape[2:])

    def finish(self, images: Tensor, probs: Tensor) -> Tensor:
        """With what the whole image has to say: outlines, appearance; a witness has spoken in `consult`."""
        if self.evidence is not None and self.image_objects:
            probs = self.evidence.unbiased(probs)
        return self._with_the_image(images, probs)

    def _with_the_image(self, images: Tensor, probs: Tensor) -> Tensor:
        if self.evidence is None or self.warming_up:
            return probs
        return self.evidence.refined(images, probs, drawn=self.image_objects)

    def validation_loss(self, batch: Batch, probs: Tensor) -> Tensor:
        """As the training does: labels that the image objects to are left out.

        Neighbours are not asked: what they say follows the model, and epochs are to be compared.
        Outlines stay where they are: the labels, drawn too wide, would speak against moving them.
        """
        labels = _weighed_labels(batch)
        if self._counts_validation:
            self.counts.add_validation(probs, labels, batch.weight)
        if self._counts_outlines:
            assert self.evidence is not None
            self.evidence.outlines.remember(batch.image, probs, labels)
        if self._weighs_refinement:
            assert self.evidence is not None
            self.evidence.compare(batch.image, probs, labels, batch.weight)
        if self.image_objects:
            batch = self._screened(batch, probs)
            probs = self._with_the_image(batch.image, probs)
        # Of drawn labels without T_C, which comes and goes: epochs are to be compared.
        noise = super().noise() if self.image_objects else self.noise()
        return corrected_cross_entropy(probs, batch.noisy, noise, weight=batch.weight)

    def end_validation(self) -> None:
        """See what validation images say: drawn labels of noise, outlines and looks, flipped ones of refinement."""
        if self._counts_validation:
            self.counts.believe_validation()
        if self._counts_outlines:
            assert self.evidence is not None
            self.evidence.outlines.measure()
        if self._weighs_refinement:
            assert self.evidence is not None
            self.evidence.weigh(self.class_transition.detach())

    @property
    def _asks_validation(self) -> bool:
        return self.evidence is not None and int(self.epoch) >= self.first_count

    @property
    def _counts_validation(self) -> bool:
        """Whether T_C is counted on validation images: that of drawn labels."""
        return self._asks_validation and not self.recipe.learned_matrices and self.counts.of_drawn_labels

    @property
    def _counts_outlines(self) -> bool:
        """Of drawn labels, once predictions are counted, where outlines are still asked about."""
        if self.evidence is None or not self._asks_validation:
            return False
        return self.evidence.asks_outlines and self.counts.of_drawn_labels

    @property
    def _weighs_refinement(self) -> bool:
        """Whether flipped labels are asked if predictions gain by refinement: where their T_C is known."""
        known = self.correct_class or not self.recipe.learned_matrices
        return self._asks_validation and known and self.counts.of_flipped_labels

    def consult(self, images: Tensor, probs: Tensor) -> Tensor:
        """With the word of a witness of drawn labels that is heard."""
        return self.evidence.coloured(images, probs) if self.evidence is not None and self.image_objects else probs

    def segment(self, images: Tensor) -> Tensor:
        """Softmax of the refined logits; of the coarse ones where DAR is not trained: warm-up, flipped labels."""
        output = self.model(images)
        size = images.shape[2:]
        if not self.uses_pairs or not self._refines:
            return resized(output.logits, size).softmax(1)
        refined = self._refined(output.logits, self._affinity(output, images, at_test=True))
        if not self.recipe.predict_both:
            return resized(refined, size).softmax(1)
        both = resized(refined.softmax(1), size) + resized(resized(output.logits, refined.shape[2:]).softmax(1), size)
        return both / 2


def _weighed_labels(batch: Batch) -> Tensor:
    """The labels, ignored where their weight is 0."""
    return batch.noisy if batch.weight is None else torch.where(batch.weight > 0, batch.noisy, IGNORE)


def _channels(model: nn.Module) -> int:
    """Channels of the images that a model takes: its first step knows."""
    first = getattr(model, "normalise", None)
    if not isinstance(getattr(first, "channels", None), int):
        raise ValueError("the colour witness needs a model of jcas.models.build_model; give witness=False with another")
    return int(first.channels)  # type: ignore[union-attr]


def _freeze_early_layers(model: nn.Module) -> None:
    """As released: stem, layer1 and layer2 of a ResNet are never optimised; their statistics still move."""
    for name in ("conv1", "bn1", "layer1", "layer2"):
        layer = getattr(model.get_submodule("encoder"), name, None)
        if isinstance(layer, nn.Module):
            layer.requires_grad_(False)
