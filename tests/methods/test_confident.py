"""Confident learning against hand counts and against cleanlab.

cleanlab (AGPL) is no part of the test environment: it brings pandas and scikit-learn, which MONAI then loads into every
run (50 MB, a second). So its answers are written down here. They come from

    pip install -c constraints.txt -e '.[audit-compare]' && python tests/methods/test_confident.py

and where it is installed it is asked itself, too.
"""

import pytest
import torch

from jcas.methods.confident import confident_joint, label_errors


def flipped(seed: int, *, classes: int, count: int = 3000) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities that mostly know the truth, and labels of which about a quarter were drawn anew."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, classes, (count,), generator=generator)
    logits = torch.randn(count, classes, generator=generator) + 2.5 * torch.nn.functional.one_hot(truth, classes)
    drawn = torch.randint(0, classes, (count,), generator=generator)
    return logits.softmax(1), torch.where(torch.rand(count, generator=generator) < 0.25, drawn, truth)


def by_hand() -> tuple[torch.Tensor, torch.Tensor]:
    """Ten labels, of which the fifth and the tenth contradict the predictions."""
    first = torch.tensor([0.9, 0.8, 0.9, 0.8, 0.1, 0.2, 0.1, 0.2, 0.1, 0.9])
    return torch.stack([first, 1 - first], 1), torch.tensor([0] * 5 + [1] * 5)


def test_joint_counts_confident_disagreement_by_hand():
    # Thresholds: class 0 mean(.9 .8 .9 .8 .1) = .70, class 1 mean(.8 .9 .8 .9 .1) = .70.
    # Label 0: four above .70 in class 0, the fifth .9 in class 1; label 1: four in class 1, the last in class 0.
    assert confident_joint(*by_hand()).tolist() == [[4, 1], [1, 4]]


def test_rows_are_scaled_to_the_number_of_labels():
    probs = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9], [0.2, 0.8], [0.2, 0.8]])
    # Thresholds .5 and .8: rows count 2, 1 of three labels and 0, 2 of two.
    assert confident_joint(probs, torch.tensor([0, 0, 0, 1, 1])).tolist() == [[2, 1], [0, 2]]
    undecided = torch.tensor([[0.6, 0.4], [0.4, 0.6], [0.2, 0.8], [0.2, 0.8]])
    # Thresholds .5 and .8: of label 0 one is confident of 0, none of 1, and stands for both.
    assert confident_joint(undecided, torch.tensor([0, 0, 1, 1])).tolist() == [[2, 0], [0, 2]]


def test_pruning_finds_exactly_the_contradicted_labels():
    assert label_errors(*by_hand()).nonzero()[:, 0].tolist() == [4, 9]


def test_labels_that_agree_with_the_prediction_are_never_pruned():
    probs, noisy = flipped(0, classes=4)
    assert not (label_errors(probs, noisy) & (probs.argmax(1) == noisy)).any()


def test_most_flipped_labels_are_found():
    generator = torch.Generator().manual_seed(0)
    probs, noisy = flipped(0, classes=3)
    clean = probs.argmax(1)
    wrong = torch.rand(len(noisy), generator=generator) < 0.2
    labels = torch.where(wrong, (clean + 1) % 3, clean)
    found = label_errors(probs, labels)
    assert (found & wrong).sum() / wrong.sum() > 0.6 and not (found & ~wrong).any()


@pytest.mark.parametrize("noisy", [[1, 1, 1], [0], [2]])
def test_one_class_alone_has_no_errors(noisy):
    labels = torch.tensor(noisy)
    probs = torch.rand(len(noisy), 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    assert confident_joint(probs, labels).sum().item() == len(noisy)
    assert not label_errors(probs, labels).any()


def asked_cleanlab(probs: torch.Tensor, noisy: torch.Tensor) -> tuple[list[list[int]], list[int]]:
    """Its calibrated joint and the indices that it prunes."""
    from cleanlab.count import compute_confident_joint
    from cleanlab.filter import find_label_issues

    labels, given = noisy.numpy(), probs.double().numpy()
    joint = compute_confident_joint(labels, given, calibrate=True)
    return joint.tolist(), find_label_issues(labels, given, filter_by="both", n_jobs=1).nonzero()[0].tolist()


def is_joint(probs: torch.Tensor, noisy: torch.Tensor, joint: list[list[int]]) -> bool:
    return torch.allclose(confident_joint(probs, noisy), torch.tensor(joint).double(), atol=1)  # they round


@pytest.mark.parametrize(
    ("seed", "classes", "joint", "pruned"),
    [
        (0, 2, [[36, 3], [5, 46]], [16, 29, 38, 73, 78, 82, 87]),
        (
            1,
            3,
            [[27, 3, 1], [2, 19, 5], [6, 5, 22]],
            [3, 5, 13, 15, 20, 34, 39, 41, 46, 49, 50, 52, 54, 59, 63, 69, 72, 75, 80, 87],
        ),
    ],
)
def test_of_few_labels_those_are_pruned_that_cleanlab_prunes(seed, classes, joint, pruned):
    probs, noisy = flipped(seed, classes=classes, count=90)
    assert is_joint(probs, noisy, joint)
    assert label_errors(probs, noisy).nonzero()[:, 0].tolist() == pruned


@pytest.mark.parametrize(
    ("seed", "classes", "joint", "pruned"),
    [
        (0, 2, [[1269, 191], [186, 1354]], 377),
        (1, 3, [[794, 102, 77], [86, 842, 80], [70, 94, 855]], 484),
        (
            3,
            5,
            [
                [454, 29, 35, 13, 26],
                [43, 488, 36, 33, 32],
                [32, 31, 476, 43, 30],
                [32, 37, 34, 480, 30],
                [27, 37, 29, 29, 464],
            ],
            560,
        ),
    ],
)
def test_of_many_labels_as_many_are_pruned_as_cleanlab_prunes(seed, classes, joint, pruned):
    probs, noisy = flipped(seed, classes=classes)
    assert is_joint(probs, noisy, joint) and label_errors(probs, noisy).sum().item() == pruned


@pytest.mark.parametrize(("seed", "classes"), [(0, 2), (1, 3), (3, 5)])
def test_joint_and_pruning_are_those_of_the_installed_cleanlab(seed, classes):
    pytest.importorskip("cleanlab")
    probs, noisy = flipped(seed, classes=classes)
    joint, pruned = asked_cleanlab(probs, noisy)
    assert is_joint(probs, noisy, joint) and label_errors(probs, noisy).nonzero()[:, 0].tolist() == pruned


if __name__ == "__main__":
    for seed, classes in ((0, 2), (1, 3)):
        print(90, seed, classes, *asked_cleanlab(*flipped(seed, classes=classes, count=90)))
    for seed, classes in ((0, 2), (1, 3), (3, 5)):
        joint, pruned = asked_cleanlab(*flipped(seed, classes=classes))
        print(3000, seed, classes, joint, len(pruned))
