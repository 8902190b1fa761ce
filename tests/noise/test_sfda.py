"""Pseudo labels are the predictor's, ignored pixels are the mask's."""

import numpy as np
import pytest
import torch

from jcas.noise import SFDA, rng_for

MASK = np.array([[0, 1, 255], [1, 1, 0]], np.uint8)
IMAGE = torch.linspace(0, 1, 6).reshape(1, 2, 3)


def bright(image: torch.Tensor) -> np.ndarray:
    return (image[0] > 0.5).long().numpy()


def test_labels_come_from_the_image_and_ignore_from_the_mask():
    noisy = SFDA(num_classes=2, predictor=bright)(MASK, rng_for(0, "a"), image=IMAGE)
    assert noisy.dtype == np.uint8
    assert noisy.tolist() == [[0, 0, 255], [1, 1, 1]]


def test_predictors_own_array_is_not_touched():
    answer = np.zeros((2, 3), np.uint8)
    SFDA(num_classes=2, predictor=lambda image: answer)(MASK, rng_for(0, "a"), image=IMAGE)
    assert not answer.any()


def test_missing_image_is_an_error():
    with pytest.raises(ValueError, match="image=None"):
        SFDA(num_classes=2, predictor=bright)(MASK, rng_for(0, "a"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [(np.zeros((3, 3)), r"\(3, 3\)"), (np.full((2, 3), 2), "2..2"), (np.full((2, 3), 255), "255..255")],
)
def test_wrong_prediction_is_named(answer, message):
    with pytest.raises(ValueError, match=message):
        SFDA(num_classes=2, predictor=lambda image: answer)(MASK, rng_for(0, "a"), image=IMAGE)


def test_parameters_name_the_source_only():
    assert SFDA(num_classes=2, predictor=bright, source="runs/wbc").parameters() == {"source": "runs/wbc"}
