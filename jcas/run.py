"""The run folder: what training leaves behind, written whole or not at all, and how it is read back.

``config.yaml``, ``metrics.jsonl`` (a line per epoch), ``results.json``, ``transition.json``, ``model.safetensors``,
``masks/`` (test predictions), ``gallery/`` (pictures for the report), ``checkpoints/{last,best}.ckpt``,
``tensorboard/``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from jcas.config import Config, make_config
from jcas.data import Dataset
from jcas.methods import Method, check_options, method_class
from jcas.models import build_model
from jcas.schema import LabelSpace

FORMAT = "1"
"""Of the run folder; a change that old code cannot read raises it."""

MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class Run:
    """A trained method with all that is needed to use it."""

    path: Path
    config: Config
    labels: LabelSpace
    channels: int
    method: Method
    intensity: tuple[float, float] | None = None  # stored values that become 0 and 1, where the dataset fixes them

    def expect_same_kind(self, dataset: Dataset) -> None:
        """Refuse a dataset of other classes or channels: the model would answer, but not what was asked."""
        if dataset.labels.names != self.labels.names:
            raise ValueError(
                f"{dataset.root}: classes {dataset.labels.names}, but {self.path} knows {self.labels.names}"
            )
        if dataset.channels != self.channels:
            raise ValueError(
                f"{dataset.root}: {dataset.channels} channels, but {self.path} was trained on {self.channels}"
            )


def build_method(config: Config, *, num_classes: int, channels: int) -> Method:
    """The method that a resolved config asks for, untrained."""
    cls = method_class(config.method)
    check_options(config.method, config.options)
    model = build_model(
        config.encoder,
        num_classes=num_classes,
        channels=channels,
        pretrained=config.pretrained or False,
        **cls.model_options(config.encoder, **config.options),
    )
    return cls(model, num_classes, **config.options)


def write_model(path: Path, method: Method, config: Config, dataset: Dataset) -> None:
    """Weights, matrices and all that `read_run` needs, in one safetensors file."""
    metadata = {
        "format": FORMAT,
        "config": config.model_dump_json(),
        "labels": json.dumps(asdict(dataset.labels)),
        "channels": str(dataset.channels),
        "intensity": json.dumps(dataset.intensity),
    }
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in method.state_dict().items()}
    write_bytes(path / MODEL_FILE, save(state, metadata=metadata))


def read_run(path: Path) -> Run:
    """Load a run folder for prediction, in evaluation mode on the CPU."""
    file = path / MODEL_FILE
    if not file.is_file():
        raise ValueError(f"{path}: not a finished run folder (no {MODEL_FILE})")
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            state = {name: stored.get_tensor(name) for name in stored.keys()}
    except SafetensorError as error:
        raise ValueError(f"{file}: damaged ({error})") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"{path}: run folder of another version (format {metadata.get('format')!r}, this one reads {FORMAT!r})"
        )
    try:
        config = make_config(json.loads(metadata["config"]), source=str(file))
        stored_labels = json.loads(metadata["labels"])
        colours = tuple(tuple(colour) for colour in stored_labels["colours"])
        labels = LabelSpace(names=tuple(stored_labels["names"]), colours=colours)
        channels, intensity = int(metadata["channels"]), json.loads(metadata["intensity"])
        # Weights come from the file: never fetch ImageNet ones to overwrite them.
        untrained = config.model_copy(update={"pretrained": False})
        method = build_method(untrained, num_classes=labels.num_classes, channels=channels)
        method.load_state_dict(state)
    except (KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path}: run folder of another version ({reason})") from None
    return Run(path, config, labels, channels, method.eval(), tuple(intensity) if intensity else None)


def device_named(name: str) -> torch.device:
    """``cpu``, ``gpu`` (CUDA or ROCm), or with ``auto`` the best that is there.

    Not ``mps``: it has no float64, in which labels are counted.
    """
    there = {"gpu": torch.cuda.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, exists in there.items() if exists)
    if name not in there:
        raise ValueError(f"unknown device {name!r}, choose one of auto, {', '.join(there)}")
    if not there[name]:
        raise ValueError(f"no device {name!r} on this machine")
    return torch.device("cuda" if name == "gpu" else name)


def write_json(path: Path, value: Any) -> None:
    """Pretty JSON, atomically."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary name beside it, flushed to the disk, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files private
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def transition_table(matrices: Mapping[str, Tensor], noise_info: Mapping[str, Any]) -> dict[str, Any]:
    """Content of ``transition.json``: what the method believes, and the truth where the noise was made by us."""
    table: dict[str, Any] = {
        key: matrices[key].detach().double().cpu().tolist() if key in matrices else None
        for key in ("class_transition", "affinity_transition", "prior")
    }
    table["true_class_transition"] = noise_info.get("true_transition") or noise_info.get("empirical_transition")
    table["true_affinity_transition"] = noise_info.get("affinity_transition")
    return table


def source_commit() -> str | None:
    """The commit of the source tree that runs, with ``+`` if files of it were changed; None outside a checkout."""
    checkout = Path(__file__).resolve().parents[1]
    top = _git(checkout, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != checkout:  # no git, or installed inside the repository of something else
        return None
    return _git(checkout, "describe", "--always", "--exclude=*", "--dirty=+")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def torch_threads(count: int | None) -> None:
    """Limit CPU threads if asked."""
    if count is not None:
        torch.set_num_threads(count)


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed tensors instead of returning it after every operation.

    glibc maps each larger block anew and the kernel clears its pages again: up to a third of a small training step on a
    CPU. Elsewhere (other C libraries, GPUs) nothing changes.
    """
    if platform.system() != "Linux":
        return
    largest, trim_threshold, top_pad, mmap_threshold = 2**31 - 1, -1, -2, -3
    with contextlib.suppress(AttributeError, OSError):
        c_library = ctypes.CDLL(None)
        c_library.mallopt(mmap_threshold, largest)
        c_library.mallopt(trim_threshold, largest)
        c_library.mallopt(top_pad, 64 * 2**20)
