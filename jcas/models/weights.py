"""Read pretrained weights from a file or a published address, and refuse those that do not fit."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

_WRAPPERS = ("module.", "Scale.")  # DataParallel's prefix, and that of the released DeepLab file


def read_weights(source: str | Path) -> dict[str, Tensor]:
    """The state dict in ``source``: a ``.pth`` / ``.pt`` or ``.safetensors`` file, or an ``https://`` address.

    An address is downloaded once into torch.hub's cache. A file that nests its weights under ``state_dict`` or
    ``model`` is unwrapped, and wrapper prefixes of its keys are removed.
    """
    if str(source).startswith("https://"):
        address = str(source)
        try:
            state = torch.hub.load_state_dict_from_url(address, map_location="cpu", weights_only=True, check_hash=True)
        except Exception as error:  # no network, a proxy, half a file
            reason = _first_line(error).strip("<>")
            raise ValueError(
                f"cannot fetch pretrained weights from {address} ({reason}); give a file with --pretrained FILE"
            ) from error
    else:
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"pretrained weights not found: {path}")
        try:
            if path.suffix == ".safetensors":
                state = load_file(path)
            else:
                state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # foreign bytes can fail in any way
            raise ValueError(f"cannot read pretrained weights {path}: {_first_line(error)}") from error
    for nest in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(nest), dict):
            state = state[nest]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"pretrained weights {source} hold no state dict of tensors")
    return {_unwrapped(key): value for key, value in state.items()}


def load_weights(module: nn.Module, source: str | Path, *, ignore: tuple[str, ...]) -> None:
    """Fill ``module`` from ``source``; keys that begin with one of ``ignore`` (a classifier) may stay unused.

    Raises:
        ValueError: a key is missing, unexpected or of another shape; the message names the first ones.
    """
    state = {key: value for key, value in read_weights(source).items() if not key.startswith(ignore)}
    own = module.state_dict()
    # Old files lack the BatchNorm step counters, which only matter when momentum is None.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    reshaped = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    problems = (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
    text = "; ".join(f"{len(keys)} {what}: {', '.join(keys[:3])}" for what, keys in problems if keys)
    if text:
        raise ValueError(f"pretrained weights {source} do not fit {type(module).__name__}: {text}")
    module.load_state_dict(state, strict=False)


def _unwrapped(key: str) -> str:
    for prefix in _WRAPPERS:
        key = key.removeprefix(prefix)
    return key


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
