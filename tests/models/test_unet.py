"""The opened U-Net computes what MONAI's does."""

from __future__ import annotations

import torch
from monai.networks.nets import UNet as MonaiUNet
from torch.nn import functional

from jcas.models import UNet
from jcas.models.unet import CHANNELS, RESIDUAL_UNITS


def monai() -> MonaiUNet:
    torch.manual_seed(0)
    strides = (2,) * (len(CHANNELS) - 1)
    return MonaiUNet(2, 1, 3, CHANNELS, strides, num_res_units=RESIDUAL_UNITS)


def ours() -> UNet:
    torch.manual_seed(0)
    return UNet(num_classes=3, channels=1, feature_dim=8)


def test_logits_equal_those_of_monai() -> None:
    image = torch.rand(2, 1, 48, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours()(image).logits, monai()((image - 0.5) / 0.25))


def test_odd_sizes_are_padded_on_the_right_and_cut_back() -> None:
    image = torch.rand(1, 1, 45, 59)
    with torch.no_grad():
        output = ours()(image)
        padded = functional.pad(image, (0, 5, 0, 3), mode="replicate")
        torch.testing.assert_close(output.logits, ours()(padded).logits[..., :45, :59])
    assert output.features is not None and output.auxiliary is not None
    assert output.features.shape[-2:] == (12, 15)
    assert output.auxiliary.logits.shape[-2:] == (6, 8)
