"""Any convolutional backbone of timm as an encoder; timm is imported only when asked for."""

from __future__ import annotations

import difflib

import torch
from torch import Tensor

from jcas.models.base import Encoder, Maps


class TimmEncoder(Encoder):
    """The last two stages of a timm backbone (Wightman, 2019), dilated to ``output_stride`` where it can be.

    Args:
        name: timm's model name, for example ``resnet26d``.
        in_channels: channels of the normalised image; other than 3, timm adapts its pretrained stem.
        output_stride: 8, 16 or 32.
        pretrained: let timm fetch its published weights.
    """

    def __init__(self, name: str, *, in_channels: int = 3, output_stride: int = 8, pretrained: bool = False) -> None:
        super().__init__()
        try:
            import timm
        except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision built for another torch
            raise ValueError(
                f"encoder timm:{name} needs timm (pip install -e '.[zoo]'), whose import failed: {error}"
            ) from error
        if not timm.is_model(name.split(".")[0]):
            near = difflib.get_close_matches(name, timm.list_models(), n=1)
            hint = f", did you mean timm:{near[0]}?" if near else ""
            raise ValueError(f"unknown encoder 'timm:{name}'{hint}")
        try:
            self.backbone = timm.create_model(
                name,
                pretrained=pretrained,
                features_only=True,
                out_indices=(-2, -1),
                output_stride=output_stride,
                in_chans=in_channels,
            ).eval()
            with torch.no_grad():  # some transformers accept one image size only, or put channels last
                shapes = [tuple(found.shape) for found in self.backbone(torch.zeros(1, in_channels, 65, 83))]
        except (TypeError, AssertionError, NotImplementedError, RuntimeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"timm:{name} gives no feature maps of stride {output_stride}: {reason}") from error
        self.backbone.train()
        before, last = self.backbone.feature_info.channels()
        if [shape[1] for shape in shapes] != [before, last]:
            raise ValueError(f"timm:{name} does not give maps (B, channels, h, w), got shapes {shapes}")
        self.channels = (before, last, last)
        self.in_channels = in_channels
        config = self.backbone.pretrained_cfg
        self.mean, self.std = tuple(config["mean"]), tuple(config["std"])
        if in_channels != 3:
            self.mean, self.std = (0.5,) * in_channels, (0.25,) * in_channels

    def forward(self, image: Tensor) -> Maps:
        """Maps of the last two stages of a normalised image (B, in_channels, H, W)."""
        before, last = self.backbone(image)
        return Maps(before, last, last)
