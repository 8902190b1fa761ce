"""The only training loop: a LightningModule around a Method.

Every epoch starts from a seed of (run seed, epoch, process), and data order and views depend on the seed and epoch
alone; so a run that was killed and resumed ends with the very weights of an uninterrupted one. On CUDA that holds as
far as the kernels repeat themselves: they are asked to, and an operation that cannot is named in a warning.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import pickle
import random
import shutil
import statistics
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import lightning as lit
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from jcas.config import Config
from jcas.data import Dataset, Preparation, check, evaluation_loader, open_dataset, training_loader
from jcas.gallery import write_gallery, write_masks
from jcas.inference import score, segment
from jcas.methods import Method
from jcas.methods.base import summed_over_processes
from jcas.metrics import SegmentationScores
from jcas.run import (
    build_method,
    device_named,
    keep_freed_memory,
    source_commit,
    torch_threads,
    transition_table,
    write_bytes,
    write_json,
    write_model,
)
from jcas.schema import Batch
from jcas.version import __version__

_SEED_STRIDE = 1_000_003  # a prime: seeds of (run, epoch, process) do not meet
_SURVEYED = 128  # training masks that a method sees before it trains
_SURVEYED_PIXELS = 1 << 27  # of all of them
_READ_TOGETHER = 32  # of them, file by file: a slice costs as much as its volume
_AFRESH = "cannot resume; remove the folder of the run to start afresh"


class TrainingError(RuntimeError):
    """Training cannot go on; the message is one line for the user, the last checkpoint is intact."""


class Engine(lit.LightningModule):
    """Steps, schedule and validation of one run."""

    def __init__(self, method: Method, config: Config, dataset: Dataset) -> None:
        super().__init__()
        self.method = method
        self.method.trusted = dataset.trusted
        self.config = config
        self.dataset = dataset
        self.preparation = Preparation(size=config.size, crop=config.crop, augmentation=config.augmentation)
        self._sums: dict[str, float] = {}
        self._batches = 0
        self.epoch_record: dict[str, Any] = {}
        self.validation_losses: list[float] = []  # of this epoch, batch by batch
        self.yardstick = ""  # by which they were measured

    # --- data ----------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled training batches of this process."""
        return self._training_loader(
            cache=self.config.cache,
            workers=self.config.workers,
            rank=self.global_rank,
            world_size=self.trainer.world_size,
        )

    def _training_loader(self, *, cache: float, workers: int, rank: int, world_size: int) -> DataLoader[Batch]:
        return training_loader(
            self.dataset,
            preparation=self.preparation,
            batch_size=self.config.batch_size,
            seed=self.config.seed,
            workers=workers,
            rank=rank,
            world_size=world_size,
            use_clean_as_labels=self.config.labels == "clean",
            cache=cache,
            repeat_threshold=self.method.repeat_threshold,
        )

    def _stored_masks(self) -> Iterator[Tensor]:  # (H, W) each
        """Labels of training images that show an outline, drawn at random, as they are stored: many, but not too many.

        255 where they weigh nothing.
        """
        clean, ignore = self.config.labels == "clean", self.dataset.labels.ignore
        records = sorted(self.dataset.split("train"), key=lambda record: record.id)
        random.Random(0).shuffle(records)
        masks = pixels = 0
        for first in range(0, len(records), _READ_TOGETHER):
            some = records[first : first + _READ_TOGETHER]
            by_file = sorted(some, key=lambda record: record.id)  # slices of one volume after another
            read = {record.id: self.dataset.stored_labels(record, clean=clean) for record in by_file}
            for mask in (read[record.id] for record in some):
                if len(mask[mask != ignore].unique()) < 2:
                    continue
                yield mask
                masks, pixels = masks + 1, pixels + mask.numel()
                if masks == _SURVEYED or pixels > _SURVEYED_PIXELS:
                    return

    def evaluation_batches(self, split: str) -> DataLoader[Batch]:
        """Batches of a split at training size; every process sees all of them, so that all agree without talking."""
        clean = split == self.config.watch and self.dataset.truth_is_clean(split)
        return evaluation_loader(
            self.dataset,
            preparation=Preparation(size=self.config.size),
            batch_size=self.config.batch_size,
            split=split,
            clean=clean,
            use_clean_as_labels=self.config.labels == "clean",
            workers=self.config.workers,
            world_size=self.trainer.world_size,
            cache=self.config.cache,
        )

    @torch.no_grad()
    def try_one_image(self) -> None:
        """Build the loaders and predict one image: sizes, labels and channels that cannot work fail here."""
        SegmentationScores(self.dataset.labels)
        batch = next(iter(self._training_loader(cache=0.0, workers=0, rank=0, world_size=1)))
        mode = self.method.training
        self.method.eval().predict(batch.image[:1])
        self.method.train(mode)

    # --- optimisation --------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """One group for encoder, heads and matrices each, all on the same polynomial schedule."""
        config, groups = self.config, self.method.parameter_groups()
        assert config.encoder_learning_rate is not None, "the config is resolved"
        rates = {
            "encoder": config.encoder_learning_rate,
            "heads": config.learning_rate,
            "matrices": config.matrix_learning_rate,
        }
        settings = [
            {
                "name": name,
                "params": parameters,
                "lr": rates[name],
                "weight_decay": 0.0 if name == "matrices" else config.weight_decay,
            }
            for name, parameters in groups.items()
            if parameters
        ]
        optimizer: torch.optim.Optimizer
        if config.optimizer == "sgd":
            optimizer = torch.optim.SGD(settings, momentum=config.momentum)
        else:
            optimizer = torch.optim.AdamW(settings)
        steps = max(int(self.trainer.estimated_stepping_batches), 1)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: (1 - min(step, steps - 1) / steps) ** config.poly_power
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_epoch_start(self) -> None:
        """Seed this epoch, tell the method, reset the sums."""
        if self.current_epoch == 0:
            self.method.survey(self._stored_masks())
        torch.manual_seed((self.config.seed * _SEED_STRIDE + self.current_epoch) * 64 + self.global_rank)
        self.method.start_epoch(self.current_epoch)
        self._sums, self._batches = {}, 0
        self._started, self._started_cpu = time.perf_counter(), time.process_time()

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Loss of one batch; stops with the images' names if it is not finite."""
        where = f"in epoch {self.current_epoch + 1} for the images {', '.join(batch.ids)}"
        try:
            parts = self.method(batch)
        except ValueError as error:  # weights that have run away make predictions that no loss accepts
            raise TrainingError(f"{error} {where}") from error
        values = {name: float(part.detach()) for name, part in parts.items()}
        if not math.isfinite(values["loss"]):
            raise TrainingError(f"loss is {values['loss']} {where}")
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._batches += 1
        if self.trainer.progress_bar_callback is not None:
            self.log_dict(values, prog_bar=True, logger=False, batch_size=len(batch.ids))
        return parts["loss"]

    def on_train_epoch_end(self) -> None:
        """Close the epoch: the method's own end, noisy validation loss, the curve for looking, one record."""
        self.method.end_epoch(self.current_epoch)
        names = sorted(self._sums)
        totals = torch.tensor([*(self._sums[name] for name in names), self._batches], dtype=torch.float64)
        totals = summed_over_processes(totals.to(self.device)).cpu()
        train = {name: float(total / totals[-1]) for name, total in zip(names, totals, strict=False)}
        rates = {str(group["name"]): group["lr"] for group in self.optimizers().param_groups}  # type: ignore[union-attr]
        matrix = self.method.matrices().get("class_transition")
        record: dict[str, Any] = {
            "epoch": self.current_epoch + 1,
            "train": train,
            "learning_rates": rates,
            "transition_diagonal": None if matrix is None else matrix.detach().diagonal().tolist(),
        }
        record |= self._validate()
        record["findings"] = self.method.findings()
        record["seconds"] = time.perf_counter() - self._started
        record["cpu_seconds"] = time.process_time() - self._started_cpu
        self.epoch_record = record
        self.log_dict({f"train/{name}": value for name, value in train.items()}, logger=True)
        if "val" in record:
            self.log("val/loss", record["val"]["loss"], logger=True)
        if record.get("looking_only", {}).get("jac") is not None:
            self.log("looking_only/jac", record["looking_only"]["jac"], logger=True)
        self.log_dict({f"learning_rate/{name}": value for name, value in rates.items()}, logger=True)
        for index, value in enumerate(record["transition_diagonal"] or ()):
            self.log(f"transition_diagonal/{index}", value, logger=True)

    @torch.inference_mode()
    def _validate(self) -> dict[str, Any]:
        self.method.eval()
        found: dict[str, Any] = {}
        watched = self.config.watch
        for split in ("val", "test"):
            if not self.dataset.split(split) or (split == "test" and watched != "test"):
                continue
            scores = SegmentationScores(self.dataset.labels)
            losses, images = [], 0
            for batch in self._kept_batches(split):
                batch = batch.to(self.device)
                probs = segment(self.method, batch.image, self.config)  # as in the test
                if split == "val":
                    losses.append(self._validation_loss(batch, probs) * len(batch.ids))
                    images += len(batch.ids)
                if batch.clean is not None:
                    believed = self.method.finish(batch.image, probs).max(1).indices
                    scores.update(believed.cpu(), batch.clean.cpu(), batch.ids)
            if images:
                found["val"] = {"loss": sum(losses) / images}
                self.validation_losses, self.yardstick = losses, self.method.yardstick
                self.method.end_validation()
            if split == watched and self.dataset.truth_is_clean(split):
                tables = scores.compute()
                found["looking_only"] = {
                    "split": split,
                    "jac": tables["jac"]["mean"],
                    "dice": tables["dice"]["mean"],
                }
        self.method.train()
        return found

    def _validation_loss(self, batch: Batch, probs: Tensor) -> float:
        """Of one batch; stops with the images' names if it cannot be told."""
        try:
            return float(self.method.validation_loss(batch, probs))
        except ValueError as error:
            where = f"in epoch {self.current_epoch + 1} for the validation images {', '.join(batch.ids)}"
            raise TrainingError(f"{error} {where}") from error

    def _kept_batches(self, split: str) -> DataLoader[Batch]:
        if not hasattr(self, "_loaders"):
            self._loaders: dict[str, DataLoader[Batch]] = {}
        if split not in self._loaders:
            self._loaders[split] = self.evaluation_batches(split)
        return self._loaders[split]


class RunWriter(Checkpoint):  # a Checkpoint runs after the module has closed the epoch
    """After each epoch: one line of metrics, then the checkpoints, each written whole or not at all."""

    def __init__(self, out: Path, config: Config, *, log_lines: bool = False) -> None:
        self.out = out
        self.log_lines = log_lines
        self.config = config
        self.least: list[float] | None = None  # validation losses, batch by batch, of the epoch with the least sum
        self.yardstick = ""  # by which they were measured
        self.best_epoch = 0
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.commits = [source_commit()]

    @property
    def commit(self) -> str | None:
        """Of the code that trained the run; all of them, where it was continued by another."""
        return ", ".join(filter(None, self.commits)) or None

    @property
    def last(self) -> Path:
        """The checkpoint that ``--resume`` continues from."""
        return self.out / "checkpoints" / "last.ckpt"

    def state_dict(self) -> dict[str, Any]:
        """Selection so far and where the run comes from; travels in the checkpoint."""
        selection = {"least": self.least, "yardstick": self.yardstick, "best_epoch": self.best_epoch}
        return {**selection, "started": self.started, "commits": self.commits}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What an earlier process knew, from the checkpoint."""
        self.least, self.best_epoch = state_dict.get("least"), state_dict["best_epoch"]
        self.yardstick = state_dict.get("yardstick", "")
        self.started = state_dict.get("started", self.started)
        self.commits = list(dict.fromkeys([*state_dict.get("commits", []), *self.commits]))

    def chooses(self, engine: Engine) -> bool:
        """Whether this epoch is the one to keep so far: the last, or the latest that is `no_worse` than the best.

        Only epochs that were measured alike are compared: a method may change its mind about which labels count.
        """
        if self.config.selection == "last" or not engine.method.selectable:  # the first epoch that may be kept is
            return True
        losses = engine.validation_losses
        if not all(map(math.isfinite, losses)):
            return False
        if self.least is None or engine.yardstick != self.yardstick or sum(losses) < sum(self.least):
            self.least, self.yardstick = losses, engine.yardstick
        return no_worse(losses, self.least)

    def on_train_start(self, trainer: lit.Trainer, pl_module: lit.LightningModule) -> None:
        """Drop lines of epochs that will be run again."""
        if trainer.is_global_zero:
            lines = read_metrics(self.out)
            kept = [line for line in lines if line["epoch"] <= trainer.current_epoch]
            write_bytes(self.out / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in kept).encode())

    def on_train_epoch_end(self, trainer: lit.Trainer, pl_module: lit.LightningModule) -> None:
        """Write the epoch."""
        assert isinstance(pl_module, Engine)
        record = pl_module.epoch_record
        chosen = "val" not in record or self.chooses(pl_module)
        if chosen:
            self.best_epoch = record["epoch"]
        temporary = self.last.with_name(".writing.ckpt")
        try:
            trainer.save_checkpoint(temporary)
            if trainer.is_global_zero:
                _flush(temporary)
                with (self.out / "metrics.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                if chosen:  # first: a checkpoint that says which epoch is best must not outrun that epoch's weights
                    _link(temporary, self.last.with_name("best.ckpt"))
                os.replace(temporary, self.last)
                if self.log_lines:
                    print(epoch_line(record, self.config.epochs), file=sys.stderr, flush=True)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise TrainingError(
                f"cannot save epoch {record['epoch']} in {self.out}: {error.strerror or error}; "
                "the last good checkpoint is kept"
            ) from error


class ProgressWithDiagonal(TQDMProgressBar):
    """Lightning's bar with the loss and the current diagonal of T_C."""

    def get_metrics(self, trainer: lit.Trainer, pl_module: lit.LightningModule) -> dict[str, Any]:
        """What stands behind the bar."""
        shown = super().get_metrics(trainer, pl_module)
        shown.pop("v_num", None)
        assert isinstance(pl_module, Engine)
        matrix = pl_module.method.matrices().get("class_transition")
        if matrix is not None:
            shown["T_C"] = " ".join(f"{value:.2f}" for value in matrix.detach().diagonal().tolist())
        return shown


def train(config: Config, out: Path, *, resume: bool = False, progress: bool = True) -> dict[str, Any] | None:
    """Train, select, evaluate on the test split, and fill the run folder; returns ``results.json``.

    On several processes only the first evaluates and writes; the others return None.
    """
    config = config.resolved()
    torch_threads(config.threads)
    keep_freed_memory()
    given = open_dataset(config.data)
    dataset = given.with_validation(config.validation)
    # As torchrun, SLURM or Lightning's own launcher number the processes.
    first = (getattr(rank_zero_only, "rank", None) or 0) == 0
    torch.manual_seed(config.seed)
    method = build_method(config, num_classes=dataset.labels.num_classes, channels=dataset.channels)
    _quieten_lightning()
    # A bar in a log file is noise; a line per epoch is not.
    engine = Engine(method, config, dataset)
    writer = RunWriter(out, config, log_lines=progress and not sys.stderr.isatty())
    trainer = _trainer(config, out, writer, progress=progress)
    if first:  # everything that can be wrong is found before anything is written
        unseen = check(dataset, use_clean_as_labels=config.labels == "clean")
        noise_info(dataset)
        engine.try_one_image()
        _prepare_folder(out, config, resume=resume)
        if dataset is not given:
            held = f"{len(dataset.split('val'))} of {len(given.split('train'))} training images"
            print(f"jcas: {dataset.root} has no val images: {held} are held out (--validation)", file=sys.stderr)
        if unseen:
            classes = f"{', '.join(unseen)} never occur{'s' if len(unseen) == 1 else ''}"
            print(f"jcas: {classes} in the training labels of {dataset.root} and cannot be learnt", file=sys.stderr)
    checkpoint = _checkpoint_to_resume(writer.last, engine) if resume else None
    if config.compile:
        for network in method.networks():
            network.compile()
    clock = time.perf_counter()
    try:
        trainer.fit(engine, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    except SystemExit:
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    if not trainer.is_global_zero:
        return None
    lines = read_metrics(out)
    about: dict[str, Any] = {"commit": writer.commit, "started": writer.started}
    about["seconds"] = sum(line["seconds"] for line in lines)
    if all("cpu_seconds" in line for line in lines):
        about["cpu_seconds"] = sum(line["cpu_seconds"] for line in lines)
    engine.to(trainer.strategy.root_device)  # the end of a training puts its module on the CPU
    results = _finish(engine, writer, out, about)
    results["seconds_with_evaluation"] = time.perf_counter() - clock
    write_json(out / "results.json", results)
    return results


def no_worse(losses: list[float], least: list[float]) -> bool:
    r"""Whether an epoch's validation losses, batch by batch, are not worse than the least ones by a standard error.

    .. math:: \bar d \le s_d / \sqrt n \quad\text{with}\quad d_i = \text{loss}_i - \text{least}_i

    Of epochs that a noisy validation set cannot tell apart the latest has learnt most: choosing the least of their
    losses would choose by chance (Breiman et al. 1984, the rule of one standard error, here of paired differences).

    >>> no_worse([1.0, 1.2, 0.9], [1.0, 1.0, 1.0]), no_worse([1.2, 1.2, 1.1], [1.0, 1.0, 1.0])
    (True, False)
    """
    differences = [now - then for now, then in zip(losses, least, strict=True)]
    spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
    return statistics.fmean(differences) <= spread / math.sqrt(len(differences))


def epoch_line(record: dict[str, Any], epochs: int) -> str:
    """One epoch in one line of text.

    >>> epoch_line({"epoch": 2, "train": {"loss": 0.51}, "val": {"loss": 0.4}, "seconds": 3.2}, 10)
    'epoch 2/10  loss 0.5100  val 0.4000  3.2 s'
    """
    words = [f"epoch {record['epoch']}/{epochs}", f"loss {record['train']['loss']:.4f}"]
    if "val" in record:
        words.append(f"val {record['val']['loss']:.4f}")
    if record.get("looking_only", {}).get("jac") is not None:
        words.append(f"jac {record['looking_only']['jac']:.1f} ({record['looking_only']['split']}, for looking only)")
    if record.get("transition_diagonal"):
        words.append("T_C " + " ".join(f"{value:.2f}" for value in record["transition_diagonal"]))
    words += [f"{name} {finding}" for name, finding in record.get("findings", {}).items()]
    return "  ".join([*words, f"{record['seconds']:.1f} s"])


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``, none if there is no such file."""
    path = out / "metrics.jsonl"
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:  # cut off by a kill or a full disk: the epoch has no checkpoint either
            break
    return found


def noise_info(dataset: Dataset) -> dict[str, Any]:
    """What `jcas corrupt` wrote about the noise of a dataset, empty if it did not make it."""
    path = dataset.root / "noise.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: must hold a mapping, got {type(found).__name__}")
    return found


def _checkpoint_to_resume(path: Path, engine: Engine) -> str | None:
    """The checkpoint of a run that was stopped, checked to be whole and of this method; None if it wrote none yet."""
    if not path.is_file():
        return None
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        learned = {name for name, _ in engine.named_parameters()}  # what a method remembers may grow
        shapes, own = (
            {name: value.shape if name in learned else None for name, value in state.items()}
            for state in (stored["state_dict"], engine.state_dict())
        )
    except (
        OSError,
        RuntimeError,
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        struct.error,
        pickle.UnpicklingError,
    ) as error:
        raise ValueError(f"{path}: damaged checkpoint ({type(error).__name__}); {_AFRESH}") from None
    if shapes != own:
        raise ValueError(f"{path}: checkpoint of another version of the method; {_AFRESH}")
    return str(path)


def _finish(engine: Engine, writer: RunWriter, out: Path, about: dict[str, Any]) -> dict[str, Any]:
    """Evaluate the selected and the last epoch on the test split and write everything."""
    config, dataset, method = engine.config, engine.dataset, engine.method
    split = "test" if dataset.split("test") else "val"
    if not dataset.split(split):
        print(f"jcas: {dataset.root} has no test or val images: the model is not evaluated", file=sys.stderr)
    noise = noise_info(dataset)
    last_scores, last_masks = score(method, dataset, split, config)
    last_tables = last_scores.compute()
    if writer.best_epoch != config.epochs:
        stored = torch.load(out / "checkpoints" / "best.ckpt", map_location=engine.device, weights_only=True)
        prefix = "method."
        weights = {key.removeprefix(prefix): value for key, value in stored["state_dict"].items()}
        method.load_state_dict(weights)
        scores, masks = score(method, dataset, split, config)
    else:
        scores, masks = last_scores, last_masks
    write_model(out, method, config, dataset)
    write_json(out / "transition.json", transition_table(method.matrices(), noise))
    write_masks(out / "masks", dataset.split(split), masks)
    write_gallery(out, method, dataset, split, masks, config)
    return {
        "version": __version__,
        "method": config.method,
        "upper_bound": config.labels == "clean",
        "options": config.options,
        "encoder": config.encoder,
        "noise": noise.get("noise"),
        "findings": method.findings(),
        "noise_info": {key: noise[key] for key in ("class_noise_rate", "affinity_noise_rate") if key in noise},
        "seed": config.seed,
        "dataset": dataset.name,
        "classes": list(dataset.labels.names),
        "colours": [list(colour) for colour in dataset.labels.colours],
        "split": split,
        "truth": "clean" if dataset.truth_is_clean(split) else "masks",
        **scores.compute(),
        "selection": "last" if config.selection == "last" or not dataset.split("val") else config.selection,
        "selected_epoch": writer.best_epoch,
        "last_epoch": {"epoch": config.epochs, "dice": last_tables["dice"], "jac": last_tables["jac"]},
        "peak_memory_mb": _peak_memory_mb(engine.device),
        **about,
    }


def _trainer(config: Config, out: Path, writer: RunWriter, *, progress: bool) -> lit.Trainer:
    callbacks: list[Callback] = [writer]
    bar = progress and sys.stderr.isatty()
    if bar:
        callbacks.append(ProgressWithDiagonal())
    parallel = config.devices > 1 or config.nodes > 1 or "WORLD_SIZE" in os.environ
    # A matrix or a feature head that the warm-up does not touch has no gradient in those steps.
    strategy = DDPStrategy(find_unused_parameters=True) if parallel else "auto"
    try:
        return _make_trainer(config, out, callbacks, strategy, bar=bar)
    except MisconfigurationException as error:
        raise TrainingError(f"device {config.device!r}: {' '.join(str(error).split())}") from None


def _make_trainer(
    config: Config, out: Path, callbacks: list[Callback], strategy: DDPStrategy | str, *, bar: bool
) -> lit.Trainer:
    return lit.Trainer(
        accelerator=device_named(config.device).type,
        devices=config.devices,
        num_nodes=config.nodes,
        strategy=strategy,
        precision=config.precision,
        deterministic=_deterministic(config),
        max_epochs=config.epochs,
        logger=TensorBoardLogger(str(out), name="tensorboard", version=""),
        callbacks=callbacks,
        enable_model_summary=False,
        enable_progress_bar=bar,
        use_distributed_sampler=False,  # ours shards global batches
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        default_root_dir=str(out),
    )


def _deterministic(config: Config) -> Literal["warn"] | None:
    """On CUDA: repeatable kernels, and a warning where an operation has none; on a CPU all of ours are."""
    on_cuda = config.device in ("auto", "gpu") and torch.cuda.is_available()
    return "warn" if config.deterministic and on_cuda else None


def _prepare_folder(out: Path, config: Config, *, resume: bool) -> None:
    if resume:
        if not (out / "config.yaml").is_file():
            raise ValueError(f"{out}: nothing to resume (no config.yaml)")
    elif out.exists() and any(out.iterdir()):
        raise ValueError(f"{out}: exists and is not empty; choose another --out or continue with --resume")
    (out / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_bytes(out / "config.yaml", config.to_yaml().encode())


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _link(source: Path, target: Path) -> None:
    """Give a finished file a second name (a copy where the file system has no links), replacing an older one."""
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    os.replace(temporary, target)


def _peak_memory_mb(device: torch.device) -> float | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _quieten_lightning() -> None:
    """Its advice on workers and its start-up banner tell our users nothing they can act on."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (".*does not have many workers.*", ".*log_every_n_steps.*", ".*LeafSpec.*"):
        warnings.filterwarnings("ignore", message)
    with contextlib.suppress(AttributeError):
        logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
