"""What the three readings of JCAS differ in: ours, the paper's, the released code's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """Everything in which `corrected`, `paper` and `released` differ; rows of docs/PAPER.md in brackets."""

    feature_dim: int = 64
    appearance: bool = True  # the image may object to labels; not in the paper
    screening: bool = True  # labels that the image objects to are set aside; with appearance only; not in the paper
    refinement: bool = True  # the image has a say in predictions; with appearance only; not in the paper
    witness: bool = True  # colours may object, too, over all images; with appearance only; not in the paper
    outline_bias: bool = True  # outlines may turn out too wide; with appearance only; not in the paper
    neighbours: bool = True  # flipped labels speak for pixels nearby, too; with appearance only; not in the paper
    robust_warmup: bool = True  # GCE on flipped labels in the warm-up; with appearance only; not in the paper
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
    training_stride: tuple[int, int] | None = None  # of the affinity grid; None: the features' own grid [7, 22]
    test_stride: tuple[int, int] | None = None
    training_grid: tuple[int, int] | None = None  # rows and columns of the affinity grid, whatever the image
    test_grid: tuple[int, int] | None = None
    cosine_reverse: bool = True  # norm(1 - cosine) instead of norm(1 - P') in the reverse map [15]
    separate_refinement: bool = True  # the loss of P teaches affinities alone, for Q has its own; not in the paper
    dar_of_flips: bool = False  # DAR where labels turn out to be flipped, too; seen with appearance only
    balanced_pairs: bool = False  # classes, as predicted, have the same part in the pairs; not in the paper
    predict_both: bool = False  # softmax(P) + softmax(Q) at test instead of P [16]


PRESETS = {
    "corrected": Recipe(),
    "paper": Recipe(
        appearance=False,
        neighbours=False,
        robust_warmup=False,
        most_pairs=None,
        learned_matrices=True,
        volume_weight=1e-4,  # VolMin's own, which the paper builds on
        free_affinity_matrix=False,
        cosine_reverse=False,
        separate_refinement=False,
        dar_of_flips=True,
    ),
    "released": Recipe(
        feature_dim=256,
        appearance=False,
        neighbours=False,
        robust_warmup=False,
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
        training_stride=(4, 5),  # 64 x 64 for images of 256 x 320
        test_stride=(8, 10),
        cosine_reverse=False,
        separate_refinement=False,
        dar_of_flips=True,
        predict_both=True,
    ),
}


def chosen_recipe(preset: str) -> Recipe:
    """The recipe of a preset, or an error that lists the presets."""
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}, choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]
