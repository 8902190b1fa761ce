"""ADELE: the curve, the moment it flattens, and which labels then change."""

import numpy as np
import pytest
import torch

from jcas.methods.adele import ADELE, curve_slope, fitted_curve, learning_curve, memorising, relabelled
from jcas.models import build_model
from jcas.schema import Batch

LATE = 30


def history(count: int, *, a: float = 0.8, b: float = 0.9, c: float = 3.0) -> list[float]:
    return learning_curve(np.arange(1, count + 1, dtype=float), a, b, c).tolist()


def test_fit_recovers_the_curve_it_was_given():
    assert fitted_curve(history(20, a=0.7, b=0.8, c=2.5)) == pytest.approx((0.7, 0.8, 2.5), abs=1e-3)


def test_slope_is_the_derivative():
    step = 1e-5
    for t in (1.0, 2.5, 9.0):
        above, below = (learning_curve(np.array([t + d]), 0.8, 0.7, 2.0)[0] for d in (step, -step))
        assert curve_slope(t, 0.8, 0.7, 2.0) == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_trigger_comes_when_the_slope_has_lost_nine_tenths():
    # With b = 1 the slope falls as exp(-(t - 1) / c): a loss of 0.9 at t = 1 + c ln 10 = 7.91 for c = 3.
    fired = [memorising(history(count, b=1.0, c=3.0), threshold=0.9) for count in range(4, 13)]
    assert fired == [False] * 4 + [True] * 5


def test_slow_start_is_cut_off():
    waiting = [0.0, 0.01, 0.02, 0.02, 0.03, 0.03, 0.03, 0.03]
    rising = [0.03, *history(5, b=1.0, c=3.0)]
    assert not memorising([*waiting, *rising[1:]], threshold=0.9)
    assert memorising([*waiting, *history(20, b=1.0, c=3.0)], threshold=0.9)


@pytest.mark.parametrize("flat", [[], [0.3], [0.0] * 12, [0.05] * 31, [0.5, float("nan"), 0.6, 0.7, 0.7]])
def test_curves_that_cannot_be_judged_do_not_fire(flat):
    assert not memorising(flat, threshold=0.9)


def test_only_sure_predictions_between_background_and_flattened_classes_relabel():
    #        given, believed, sure: 0->1, 1->0, 1->1, 0->2 (2 not flattened), 2->1, 0->1 unsure, 255
    noisy = torch.tensor([[[0, 1, 1, 0, 2, 0, 255]]])
    believed, sure = [1, 0, 1, 2, 1, 1, 1], [0.9, 0.9, 0.9, 0.9, 0.9, 0.6, 0.9]
    probs = torch.zeros(1, 4, 1, 7)
    for k, (c, p) in enumerate(zip(believed, sure, strict=True)):
        probs[0, :, 0, k] = (1 - p) / 3
        probs[0, c, 0, k] = p
    flattened = torch.tensor([False, True, False, False])
    assert relabelled(noisy, probs, flattened, confidence=0.7).tolist() == [[[1, 0, 1, 0, 2, 0, 255]]]
    assert torch.equal(relabelled(noisy, probs, torch.zeros(4, dtype=torch.bool), confidence=0.7), noisy)


def test_a_class_that_the_image_does_not_show_is_never_put_into_it():
    noisy = torch.tensor([[[0, 0]], [[0, 1]]])
    probs = torch.tensor([0.05, 0.95]).view(1, 2, 1, 1).expand(2, 2, 1, 2)
    found = relabelled(noisy, probs, torch.tensor([False, True]), confidence=0.7)
    assert found.tolist() == [[[0, 0]], [[1, 1]]]


def build(**options) -> ADELE:
    torch.manual_seed(0)
    return ADELE(build_model("tiny", num_classes=3, channels=1), 3, **options)


def test_an_epoch_adds_the_iou_of_predictions_with_the_given_labels():
    method = build(scales=[1.0]).eval()
    images = torch.rand(2, 1, 32, 40, generator=torch.Generator().manual_seed(0))
    believed = method.predict(images).argmax(1)
    noisy = believed.clone()
    noisy[0, :16] = (noisy[0, :16] + 1) % 3
    noisy[1, :4] = 255
    method.start_epoch(0)
    method(Batch(image=images, noisy=noisy, ids=("a", "b")))
    method.end_epoch(0)
    valid = noisy != 255
    for c in range(3):
        true, found = (noisy == c) & valid, (believed == c) & valid
        iou = ((true & found).sum() / (true | found).sum().clamp_min(1)).item()
        assert method.history[0][c] == pytest.approx(iou, abs=1e-6)


def test_flattened_classes_are_corrected_and_the_curves_are_saved():
    method = build()
    method.history = [[0.9, value, 0.0] for value in history(LATE)]
    method.end_epoch(LATE)
    assert method.flattened.tolist() == [False, True, False]
    other = build()
    other.load_state_dict(method.state_dict())
    assert other.history == method.history and other.flattened.tolist() == [False, True, False]
    noisy = torch.ones(1, 1, 2, dtype=torch.long)
    noisy[0, 0, 1] = 0
    sure_of_background = torch.tensor([0.9, 0.05, 0.05]).view(1, 3, 1, 1).expand(1, 3, 1, 2)
    batch = Batch(image=torch.rand(1, 1, 32, 32), noisy=noisy, ids=("a",))
    assert other._corrected(batch, sure_of_background, torch.ones(1, 1, 2)).tolist() == [[[0, 0]]]


def test_scales_must_be_positive():
    with pytest.raises(ValueError, match=r"scales must be positive, got \[0.0\]"):
        build(scales=[0.0])
