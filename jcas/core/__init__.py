"""The paper's mathematics as plain functions of tensors of any spatial rank; imports torch only.

What `appearance`, `neighbours` and `outlines` add to it looks at pixels nearby in the plane: images and masks
(B, ..., H, W) alone.

| paper          | here                            | shape             | rule                                          |
|----------------|---------------------------------|-------------------|-----------------------------------------------|
| T_C(m, n)      | ``transition``                  | (C, C)            | p(noisy = n given clean = m); rows sum to 1   |
| T_A, T_{C->A}  | ``affinity_transition``         | (2, 2)            | index 0 = different, 1 = same, everywhere     |
| N              | ``prior``                       | (C,)              | clean class proportions                       |
| f              | ``features``                    | (B, d, *spatial)  | made non-negative and unit-length inside      |
| P', P'_re      | `Affinity`, `propagate_reverse` | never built       | cosine in the loss, row-normalised in DAR     |
| Q, P           | ``coarse``, ``refined``         | (B, C, *spatial)  | logits unless the name ends in ``probs``      |
| Y~, Y          | ``noisy``, ``clean``            | (B, *spatial)     | integers, 255 = ignore                        |
"""

from jcas.core.affinity import Affinity
from jcas.core.appearance import drawn, local_appearance, refined_by_appearance, repaired, roughness, unchallenged
from jcas.core.counting import clean_counts, confusion_counts, counted_transition, estimated_jaccard, pair_counts
from jcas.core.losses import corrected_affinity_loss, corrected_cross_entropy
from jcas.core.neighbours import neighbour_evidence
from jcas.core.reasoning import refine
from jcas.core.regularizers import class_affinity_consistency, sparsity, volume
from jcas.core.theorem import affinity_noise_rate, class_noise_rate, class_to_affinity
from jcas.core.transition import (
    FreeTransitionMatrix,
    TransitionMatrix,
    asymmetric,
    from_counts,
    pair_flip,
    symmetric,
)

__all__ = [
    "Affinity",
    "FreeTransitionMatrix",
    "TransitionMatrix",
    "affinity_noise_rate",
    "asymmetric",
    "class_affinity_consistency",
    "class_noise_rate",
    "class_to_affinity",
    "clean_counts",
    "confusion_counts",
    "corrected_affinity_loss",
    "corrected_cross_entropy",
    "counted_transition",
    "drawn",
    "estimated_jaccard",
    "from_counts",
    "local_appearance",
    "neighbour_evidence",
    "pair_counts",
    "pair_flip",
    "refine",
    "refined_by_appearance",
    "repaired",
    "roughness",
    "sparsity",
    "symmetric",
    "unchallenged",
    "volume",
]
