"""JCAS: the paper's method with its switches, as corrected by us and as released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from jcas.core import (
    Affinity,
    FreeTransitionMatrix,
    TransitionMatrix,
    class_affinity_consistency,
    class_to_affinity,
    confusion_counts,
    corrected_affinity_loss,
    corrected_cross_entropy,
    counted_transition,
    drawn,
    from_counts,
    pair_counts,
    refine,
    refined_by_appearance,
    repaired,
    roughness,
    unchallenged,
    volume,
)
from jcas.core.counting import core_confidence
from jcas.methods.base import (
    AUXILIARY_WEIGHT,
    Method,
    class_loss,
    mean_over_processes,
    resized,
    resized_labels,
    summed_over_processes,
)
from jcas.methods.outline_bias import OutlineBias
from jcas.methods.witness import ColourWitness
from jcas.schema import IGNORE, Batch, Output


@dataclass(frozen=True)
class Recipe:
    """Everything in which `corrected`, `paper` and `released` differ; rows of docs/PAPER.md in brackets."""

    feature_dim: int = 64
    appearance: bool = True  # the image may object to labels; not in the paper
    screening: bool = True  # labels that the image objects to are set aside; with appearance only; not in the paper
    refinement: bool = True  # the image has a say in predictions; with appearance only; not in the paper
    witness: bool = True  # colours may object, too, over all images; with appearance only; not in the paper
    outline_bias: bool = True  # outlines may turn out too wide; with appearance only; not in the paper
    released_network: bool = False  # feature heads of dilated convolutions, two dilations, frozen parts [3, 10]
    affinity_in_warmup: bool = False  # pairs and DAR before anything is known of the noise [17]
    main_affinity_weight: float = 1.0  # [13]
    most_pairs: int | None = 1 << 16  # drawn per image in training, expectation exact; all of them cost O(n^2)
    auxiliary_affinity_weight: float = 0.0
    learned_matrices: bool = False  # by gradient, with a volume term, instead of by counting predictions [6]
    volume_weight: float = 1e-3  # of learned matrices [6]
    free_affinity_matrix: bool = True  # learned rows that can express a diagonal below 0.5 [30]
    crossed_consistency: bool = False  # compare same with different, as the listing does [1]
    prior_from_labels: bool = False  # noisy labels instead of warm-up predictions [9]
    training_grid: tuple[int, int] | None = None  # None: the model's own grid [7, 22]
    test_grid: tuple[int, int] | None = None
    cosine_reverse: bool = True  # norm(1 - cosine) instead of norm(1 - P') in the reverse map [15]
    predict_both: bool = False  # softmax(P) + softmax(Q) at test instead of P [16]


PRESETS = {
    "corrected": Recipe(),
    "paper": Recipe(
        appearance=False,
        most_pairs=None,
        learned_matrices=True,
        volume_weight=1e-4,  # VolMin's own, which the paper builds on
        free_affinity_matrix=False,
        cosine_reverse=False,
    ),
    "released": Recipe(
        feature_dim=256,
        appearance=False,
        most_pairs=None,
        released_network=True,
        affinity_in_warmup=True,
        main_affinity_weight=0.1,
        auxiliary_affinity_weight=1.0,
        learned_matrices=True,
        volume_weight=0.5,
        free_affinity_matrix=False,
        crossed_consistency=True,
        prior_from_labels=True,
        training_grid=(64, 64),
        test_grid=(32, 32),
        cosine_reverse=False,
        predict_both=True,
    ),
}


class JCAS(Method):
    r"""Joint class-affinity segmentation: correct labels pixel by pixel and pair by pair, and make the two agree.

    Guo & Yuan, Joint Class-Affinity Loss Correction, MICCAI 2022.

    .. math:: L = L^C_{LC}(P) + L^C_{LC}(Q) + L^A_{LC} \;(+\; \mu \log|\det T_C| + \lambda L_{CACR} \text{ if learned})

    with refined logits :math:`P = Q + \frac12 (P'Q - P'_{re}Q)`. Learns: the model; and of the noise T_C (C x C) and
    T_A (2 x 2), by counting or by gradient.

    The first ``warmup`` epochs are the baseline. From the last of them on every epoch counts the model's predictions
    against the labels (`confusion_counts`): the shares of the classes are the prior N, the labels of the surest quarter
    of each class (`core_confidence`), rows normalised (`counted_transition`), are T_C, and Theorem 1 gives T_A.
    ``consistency_weight=0`` lets T_A be counted on its own instead. With ``learned_matrices=True`` (the paper's way)
    both are learned by gradient beside a volume term of weight ``volume_weight``, and ``consistency_weight`` weighs
    L_CACR.

    No matrix explains a habit of those who draw, and a network learns it like any shape. The warm-up measures which
    kind of labels it has (`roughness`). To `drawn` ones the image may object (``appearance``). A `ColourWitness`
    (``witness``) learns to name classes by colour alone, first from the labels, then from the predictions; if it knows
    all classes (`known_classes`), labels stand where it names them. If not, a label is set aside where image, model and
    label together (`repaired`) name another class (`unchallenged`), and outlines that are too wide all over the dataset
    are moved (``outline_bias``, `OutlineBias`). If looks do not tell touching classes apart, either, labels whose
    colour is the background's are set aside (`ColourWitness.unlike_background`). Who objects has a say in the
    prediction, too; appearance also if labels were flipped, wherever looks tell touching classes apart.
    Labels are never replaced: the model cannot talk itself into anything. T_C is counted over all pixels. It corrects
    drawn labels, and pairs take part, only while no habit is seen, as with labels of several readers: no witness is
    heard, and outlines seem right (`OutlineBias.right`). It is counted on validation images where there are any: those
    of the training are learned by heart. Of labels with a habit T_C would forgive what the image objects to.

    Ablations of the paper: ``affinity``, ``intra``, ``inter``, ``correct_class``, ``correct_affinity``,
    ``consistency_weight=0``. ``preset`` chooses between our reading (``corrected``), the paper's (``paper``) and the
    released code with its quirks (``released``): docs/PAPER.md lists every difference. ``appearance`` (of it
    ``screening`` of labels and ``refinement`` of predictions), ``witness``, ``outline_bias``, ``most_pairs``,
    ``learned_matrices``, ``volume_weight`` and ``cosine_reverse`` override it. docs/METHOD.md explains all.

    DAR runs on the grid of the features; its correction of the logits is added at the grid of the logits, so that a
    coarse affinity grid does not blur a fine prediction. Memory O(n d): no n x n tensor exists.
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
        most_pairs: int | None = None,
        learned_matrices: bool | None = None,
        volume_weight: float | None = None,
        cosine_reverse: bool | None = None,
    ) -> None:
        super().__init__(model, num_classes)
        overrides: dict[str, Any] = {
            "appearance": appearance,
            "screening": screening,
            "refinement": refinement,
            "witness": witness,
            "outline_bias": outline_bias,
            "most_pairs": most_pairs,
            "learned_matrices": learned_matrices,
            "volume_weight": volume_weight,
            "cosine_reverse": cosine_reverse,
        }
        given = {name: value for name, value in overrides.items() if value is not None}
        recipe = replace(chosen_recipe(preset), **given)
        for name, needed in (
            ("screening", "appearance"),
            ("refinement", "appearance"),
            ("witness", "appearance"),
            ("outline_bias", "appearance"),
            ("volume_weight", "learned_matrices"),
        ):
            if overrides[name] and not getattr(recipe, needed):
                raise ValueError(f"{name} does nothing without {needed}")
        if warmup < 0:
            raise ValueError(f"warmup must not be negative, got {warmup}")
        if most_pairs is not None and most_pairs < 1:
            raise ValueError(f"most_pairs must be at least 1, got {most_pairs}")
        self.recipe = recipe
        self.warmup = warmup
        self.affinity = affinity
        self.intra = intra and affinity
        self.inter = inter and affinity
        self.correct_class = correct_class
        self.correct_affinity = correct_affinity
        self.consistency_weight = consistency_weight
        if recipe.learned_matrices:
            self.class_matrix = TransitionMatrix(num_classes)
            self.affinity_matrix = FreeTransitionMatrix(2) if recipe.free_affinity_matrix else TransitionMatrix(2)
        self.epoch: Tensor
        self.prior: Tensor
        self.class_counts: Tensor
        self.core_counts: Tensor
        self.pair_counts: Tensor
        self.class_transition: Tensor
        self.pair_transition: Tensor
        self.roughness: Tensor
        self.pairs_of_drawn: Tensor
        self.validation_counts: Tensor
        self.validation_pairs: Tensor
        self.validated: Tensor
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))
        self.register_buffer("prior", torch.full((num_classes,), 1 / num_classes))
        self.register_buffer("class_counts", torch.zeros(num_classes, num_classes, dtype=torch.float64))
        of_cores = torch.zeros(num_classes, num_classes, dtype=torch.float64)
        self.register_buffer("core_counts", of_cores, persistent=False)  # counted anew in every epoch
        self.register_buffer("pair_counts", torch.zeros(2, 2, dtype=torch.float64))
        self.register_buffer("class_transition", torch.eye(num_classes))  # counted
        self.register_buffer("pair_transition", torch.eye(2))  # counted, or from the counted one by Theorem 1
        self.register_buffer("roughness", torch.zeros(2, dtype=torch.float64))  # sum over images, images
        of_validation = {"validation_counts": (num_classes, num_classes), "validation_pairs": (2, 2)}
        for name, shape in of_validation.items():  # counted anew in every epoch
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64), persistent=False)
        self.register_buffer("validated", torch.tensor(False))  # whether T_C is counted on validation images
        self.register_buffer("pairs_of_drawn", torch.tensor(False))  # whether this epoch trains them
        self.witness: ColourWitness | None = None
        if recipe.appearance and recipe.witness:
            self.witness = ColourWitness(_channels(model), num_classes)
        self.outlines: OutlineBias | None = None
        if recipe.appearance:
            self.outlines = OutlineBias(num_classes)
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
        """Three tenths of the run warm up: a class not yet found when the counting starts may never be."""
        return {"warmup": max(1, round(0.3 * epochs))}

    # --- noise ---------------------------------------------------------------------------------------------------

    @property
    def warming_up(self) -> bool:
        """Whether the current epoch still believes the labels."""
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
    def image_objects(self) -> bool:
        """Whether the labels have turned out to be drawn, so that the image may object to them."""
        return self.recipe.appearance and not self.warming_up and self._labels_are_drawn

    @property
    def _labels_are_drawn(self) -> bool:
        total, images = self.roughness.tolist()
        return bool(images > 0 and drawn(total / images))

    @property
    def _witness_heard(self) -> bool:
        return self.witness is not None and self.witness.heard

    @property
    def _only_colour_speaks(self) -> bool:
        """Whether of drawn labels no more can be said than that a colour is the background's.

        The witness does not know all classes, and looks do not tell all classes apart that touch.
        """
        if self.witness is None or self.outlines is None or not self.image_objects:
            return False
        looked_in_vain = int(self.outlines.failures) > 0 and not bool(self.outlines.telling)
        return looked_in_vain and not self.witness.heard and bool(self.witness.distinct.any())

    @property
    def uses_pairs(self) -> bool:
        """Whether pairs are trained and refine: not in the warm-up, and of drawn labels only where no habit is seen.

        Pairs across an outline that is wrong by habit are wrong like its pixels, and no matrix tells how often.
        """
        if not self.affinity:
            return False
        if self.image_objects:
            return bool(self.pairs_of_drawn)
        return not self.warming_up or self.recipe.affinity_in_warmup

    @property
    def _no_habit_seen(self) -> bool:
        """Whether the image has looked for what is wrong with drawn labels everywhere, and found nothing.

        A witness that is heard finds more than outlines show.
        """
        return self.outlines is not None and self.outlines.right and not self._witness_heard

    @property
    def corrects_class(self) -> bool:
        """Whether T_C corrects the loss: of flipped labels, and of drawn ones without a habit.

        A habit, like outlines that are too wide everywhere, is no chance that befalls pixels: T_C would forgive it.
        """
        if self.warming_up or not self.correct_class:
            return False
        return not self.image_objects or self._no_habit_seen

    def noise(self) -> Tensor:
        """T_C where it corrects the loss, the identity elsewhere."""
        if not self.corrects_class:
            return super().noise()
        return self.class_matrix() if self.recipe.learned_matrices else self.class_transition

    def pair_noise(self) -> Tensor:
        """T_A where the loss is corrected by it, the identity elsewhere."""
        if self.warming_up or not self.uses_pairs or not self.correct_affinity:
            return torch.eye(2, device=self.prior.device)
        return self.affinity_matrix() if self.recipe.learned_matrices else self.pair_transition

    def matrices(self) -> dict[str, Tensor]:
        """T_C, T_A and N."""
        found, learned = {"prior": self.prior}, self.recipe.learned_matrices
        if self.correct_class:
            found["class_transition"] = self.class_matrix() if learned else self.class_transition
        if self.affinity and self.correct_affinity:
            found["affinity_transition"] = self.affinity_matrix() if learned else self.pair_transition
        return found

    def findings(self) -> dict[str, str]:
        """Which kind of labels it has, what refines predictions, and what outlines are moved by."""
        total, images = self.roughness.tolist()
        if self.outlines is None or images == 0:
            return {}
        found = {"labels": f"{'drawn' if self._labels_are_drawn else 'flipped'} (roughness {total / images:.3f})"}
        if self._labels_are_drawn and self._witness_heard:
            found["predictions"] = "refined by colour" if self.recipe.refinement else "not refined"
        else:
            told = "refined by appearance" if bool(self.outlines.telling) else "not refined"
            if self._only_colour_speaks:
                told = "refined by colour against background"
            found["predictions"] = told if self.recipe.refinement else "not refined"
            if self.recipe.outline_bias and bool(self.outlines.offset.any()):
                found["outlines"] = "moved by " + " ".join(f"{value:+.2f}" for value in self.outlines.offset.tolist())
        if self.image_objects and self.corrects_class:
            found["noise"] = "no habit seen, T_C corrects it"
        return found

    def start_epoch(self, epoch: int) -> None:
        """Enter the stage of this epoch and start its counts."""
        self.epoch.fill_(epoch)
        self.pairs_of_drawn.fill_(self._no_habit_seen)  # not later: a prediction must not ask features nobody trained
        self.class_counts.zero_()
        self.core_counts.zero_()
        self.pair_counts.zero_()
        self.validation_counts.zero_()
        self.validation_pairs.zero_()
        if self.witness is not None:
            self.witness.start_epoch()
        if self.outlines is not None:
            self.outlines.forget()

    def end_epoch(self, epoch: int) -> None:
        """Turn the epoch's counts into prior and matrices (learned ones take only the prior, and only once)."""
        if self.witness is not None:
            self.witness.end_epoch()
        if not bool(self.class_counts.sum() > 0):
            return
        if not self.recipe.learned_matrices:
            if not (self._labels_are_drawn and bool(self.validated)):
                of_noise = self.class_counts if self._labels_are_drawn else self.core_counts
                self._adopt(self.class_counts, of_noise, self.pair_counts)
        elif epoch == self.first_count:
            by_label = self.class_counts.sum(0 if self.recipe.prior_from_labels else 1)
            self.prior.copy_(by_label / by_label.sum())
            if isinstance(self.affinity_matrix, FreeTransitionMatrix):
                implied = class_to_affinity(self.class_matrix().detach(), self.prior)
                self.affinity_matrix.weight.data.copy_(implied.clamp_min(1e-4).log())

    def _adopt(self, believed: Tensor, of_noise: Tensor, of_pairs: Tensor) -> None:
        """Turn counts into N, T_C and T_A."""
        self.prior.copy_(believed.sum(1) / believed.sum())
        self.class_transition.copy_(counted_transition(of_noise))
        if self.consistency_weight:
            self.pair_transition.copy_(class_to_affinity(self.class_transition, self.prior))
        else:
            self.pair_transition.copy_(from_counts(of_pairs))

    # --- training ------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The joint loss; reads top to bottom as the paper's Fig. 2 does."""
        output = self.model(batch.image)
        if int(self.epoch) >= self.first_count:
            self._count(output.logits, batch)
        lesson = self._taught_witness(output.logits, batch)
        if self.image_objects:
            batch = self._screened(batch, resized(output.logits, batch.noisy.shape[1:]).softmax(1))
        with_pairs = self.uses_pairs
        if not with_pairs:
            parts = {"class_loss": class_loss(output.logits, batch, self.noise())}
            loss = parts["class_loss"]
        else:
            pairs = self._affinity(output, self.recipe.training_grid)
            refined = self._refined(output.logits, pairs)
            parts = {
                "class_loss": class_loss(refined, batch, self.noise()),
                "coarse_loss": class_loss(output.logits, batch, self.noise()),
                "affinity_loss": self._pair_loss(pairs, batch),
            }
            loss = parts["class_loss"] + parts["coarse_loss"]
            loss = loss + self.recipe.main_affinity_weight * parts["affinity_loss"]
        if output.auxiliary is not None:
            auxiliary_logits = output.auxiliary.logits
            if with_pairs and output.auxiliary.features is not None:
                pairs = self._affinity(output.auxiliary, self.recipe.training_grid)
                auxiliary_logits = self._refined(auxiliary_logits, pairs)
                parts["auxiliary_affinity_loss"] = self._pair_loss(pairs, batch)
                loss = loss + self.recipe.auxiliary_affinity_weight * parts["auxiliary_affinity_loss"]
            parts["auxiliary_loss"] = class_loss(auxiliary_logits, batch, self.noise())
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
        inside = set() if self.witness is None else {id(p) for p in self.witness.parameters()}
        groups["heads"] += [p for p in groups["matrices"] if id(p) in inside]
        groups["matrices"] = [p for p in groups["matrices"] if id(p) not in inside]
        return groups

    def _taught_witness(self, logits: Tensor, batch: Batch) -> Tensor | None:
        """The witness's own loss: in the warm-up on the labels, then on what the model has made of them."""
        if self.witness is None or not (self.warming_up or self.image_objects):
            return None
        labels = taught = _trusted(batch)
        if not self.warming_up:
            believed = resized(logits.detach(), labels.shape[1:]).max(1).indices
            taught = torch.where(labels == IGNORE, IGNORE, believed)
        return self.witness.lesson(batch.image, labels, taught)

    @torch.no_grad()
    def _screened(self, batch: Batch, probs: Tensor) -> Batch:
        """The batch without the labels that the witness denies; where none is heard, with those `unchallenged`.

        Where looks do not tell, either, without those of a background colour.
        """
        if not self.recipe.screening:
            return batch
        labels = _trusted(batch)
        if self.witness is not None and self.witness.heard:
            return replace(batch, noisy=self.witness.confirmed(batch.image, labels))
        if self._only_colour_speaks:
            assert self.witness is not None
            return replace(batch, noisy=self.witness.unlike_background(batch.image, labels))
        return replace(batch, noisy=unchallenged(labels, repaired(batch.image, labels, self._unbiased(probs))))

    def _unbiased(self, probs: Tensor) -> Tensor:
        """Without the labels' habit of too wide outlines, where no witness is heard."""
        if self.outlines is None or not self.recipe.outline_bias or self._witness_heard:
            return probs
        return self.outlines.unbiased(probs)

    def _pair_loss(self, pairs: Affinity, batch: Batch) -> Tensor:
        noisy = resized_labels(batch.noisy, pairs.spatial)
        weight = None if batch.weight is None else resized_labels(batch.weight, pairs.spatial)
        most = None if self.recipe.most_pairs is None else self.recipe.most_pairs * len(noisy)
        return corrected_affinity_loss(pairs, noisy, self.pair_noise(), weight=weight, max_pairs=most)

    def _matrix_terms(self, parts: dict[str, Tensor]) -> Tensor:
        """Volume and consistency; adds them to ``parts`` and returns their weighted sum."""
        total = self.prior.new_zeros(())
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
            parts["consistency"] = class_affinity_consistency(self.class_matrix(), pair_transition, self.prior)
            total = total + self.consistency_weight * parts["consistency"]
        return total

    @torch.no_grad()
    def _count(self, logits: Tensor, batch: Batch) -> None:
        """Add this batch's predictions against its labels to the counts."""
        probs = self._unbiased(logits.softmax(1))
        sure, believed = probs.max(1)  # argmax takes eight times as long
        size = believed.shape[1:]
        weight = None if batch.weight is None else resized_labels(batch.weight, size)
        labels = resized_labels(_trusted(batch), size)
        of_all = confusion_counts(believed, labels, self.num_classes, weight=weight)
        self.class_counts += summed_over_processes(of_all.sum(0))
        least = core_confidence(probs.movedim(1, 0).flatten(1), (labels != IGNORE).flatten())
        labels = torch.where(sure >= least[believed], labels, IGNORE)
        of_cores = confusion_counts(believed, labels, self.num_classes, weight=weight)
        self.core_counts += summed_over_processes(of_cores.sum(0))
        # What is wrong with drawn labels is not in the cores.
        self.pair_counts += summed_over_processes(pair_counts(of_all if self._labels_are_drawn else of_cores))
        if int(self.epoch) == self.first_count and self.recipe.appearance:
            rough = roughness(_trusted(batch), self.num_classes).double()
            self.roughness += summed_over_processes(torch.stack([rough.nansum(), (~rough.isnan()).sum()]))

    # --- refinement and prediction -------------------------------------------------------------------------------

    def _affinity(self, output: Output, grid: tuple[int, int] | None) -> Affinity:
        assert output.features is not None, "the model was built without a feature head"
        return Affinity(output.features if grid is None else resized(output.features, grid))

    def _refined(self, coarse: Tensor, pairs: Affinity) -> Tensor:
        if not (self.intra or self.inter):
            return coarse
        on_grid = resized(coarse, pairs.spatial)
        refined = refine(on_grid, pairs, self.intra, self.inter, cosine_reverse=self.recipe.cosine_reverse)
        if on_grid is coarse or self.recipe.released_network:
            return refined
        return coarse + resized(refined - on_grid, coarse.shape[2:])

    def finish(self, images: Tensor, probs: Tensor) -> Tensor:
        """With what the image has to say: outlines, witness, appearance."""
        if self.image_objects:
            probs = self._unbiased(probs)
        return self._with_the_image(images, probs)

    def _with_the_image(self, images: Tensor, probs: Tensor) -> Tensor:
        """At half its strength, because a prediction has seen the image already; by looks only where these tell."""
        if self.warming_up or self.outlines is None or not self.recipe.refinement:
            return probs
        if self.witness is not None and self.image_objects and self.witness.heard:
            return (probs.clamp_min(1e-9).log() + self.witness(images).log_softmax(1) / 2).softmax(1)
        if self._only_colour_speaks:
            assert self.witness is not None
            return self.witness.weighed(images, probs)
        return refined_by_appearance(images, probs) if bool(self.outlines.telling) else probs

    def validation_loss(self, batch: Batch, probs: Tensor) -> Tensor:
        """As the training does: labels that the image objects to are left out.

        Outlines stay where they are: the labels, drawn too wide, would speak against moving them.
        """
        if self._counts_validation:
            confusion = confusion_counts(probs.max(1).indices, _trusted(batch), self.num_classes, weight=batch.weight)
            self.validation_counts += confusion.sum(0)
            self.validation_pairs += pair_counts(confusion)
        if self._counts_outlines:
            assert self.outlines is not None
            labels = _trusted(batch)
            if not self._labels_are_drawn:  # flipped ones show no outlines
                labels = torch.where(labels == IGNORE, IGNORE, probs.max(1).indices)
            self.outlines.remember(batch.image, probs, labels)
        if self.image_objects:
            batch = self._screened(batch, probs)
            probs = self._with_the_image(batch.image, probs)
        # Of drawn labels without T_C, which comes and goes: epochs are to be compared.
        noise = super().noise() if self.image_objects else self.noise()
        return corrected_cross_entropy(probs, batch.noisy, noise, weight=batch.weight)

    def end_validation(self) -> None:
        """See what the validation images say about the noise of drawn labels, about outlines, and about looks."""
        if self._counts_validation:
            counts, of_pairs = mean_over_processes(self.validation_counts), mean_over_processes(self.validation_pairs)
            if bool(counts.any()):
                self._adopt(counts, counts, of_pairs)
                self.validated.fill_(True)
        if self._counts_outlines:
            assert self.outlines is not None
            self.outlines.measure(move=self._labels_are_drawn)

    @property
    def _counts_validation(self) -> bool:
        """Whether T_C is counted on validation images: labels of training images are drawn once and learned by heart.

        Flipped ones are not learned so soon, and need as many pixels as there are.
        """
        counts = self.recipe.appearance and not self.recipe.learned_matrices and int(self.epoch) >= self.first_count
        return counts and self._labels_are_drawn

    @property
    def _counts_outlines(self) -> bool:
        """Once predictions are counted; of drawn labels where no witness speaks, and looks have not failed."""
        if self.outlines is None or int(self.epoch) < self.first_count:
            return False
        return not (self._labels_are_drawn and (self._witness_heard or self.outlines.failed))

    def segment(self, images: Tensor) -> Tensor:
        """Softmax of the refined logits; without DAR where the warm-up has not trained it."""
        output = self.model(images)
        size = images.shape[2:]
        if not self.uses_pairs or not (self.intra or self.inter):
            return resized(output.logits, size).softmax(1)
        refined = self._refined(output.logits, self._affinity(output, self.recipe.test_grid))
        if not self.recipe.predict_both:
            return resized(refined, size).softmax(1)
        both = resized(refined.softmax(1), size) + resized(resized(output.logits, refined.shape[2:]).softmax(1), size)
        return both / 2


def chosen_recipe(preset: str) -> Recipe:
    """The recipe of a preset, or an error that lists the presets."""
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}, choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]


def _trusted(batch: Batch) -> Tensor:
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
