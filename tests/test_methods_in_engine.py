"""Methods in real runs: what they remember survives a crash, trusted images reach them, processes stay in step."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from jcas.config import Config, make_config, read_values
from jcas.corrupt import corrupt
from jcas.data import open_dataset
from jcas.data.synthetic import write_dataset
from jcas.engine import Engine, train
from jcas.methods import Method, method_class, method_names, method_options
from jcas.methods.outline_bias import OutlineBias
from jcas.models import build_model
from jcas.run import build_method, read_run
from jcas.schema import Batch


@pytest.fixture(scope="module")
def noisy(tmp_path_factory) -> Path:
    """12 scenes of 40 x 48 with symmetric noise."""
    folder = tmp_path_factory.mktemp("data")
    truth = write_dataset(folder / "truth", count=12, size=(40, 48), seed=3, domain="source")
    return corrupt(truth, noise="symmetric", parameters={"rate": 0.3}, out=folder / "noisy", progress=False)


def small(data: Path, method: str, **changes) -> Config:
    return make_config(
        {"data": str(data), "method": method, "encoder": "tiny", "epochs": 4, "batch_size": 4, "threads": 1, **changes}
    )


@pytest.mark.parametrize("name", ["adele", "mtcl", "coteaching", "css", "sr"])
def test_what_a_method_remembers_survives_a_crash(name, noisy, tmp_path, monkeypatch):
    crash_and_resume(small(noisy, name), tmp_path, monkeypatch)


def test_what_the_image_has_said_survives_a_crash(tmp_path, monkeypatch):
    """Outlines drawn too wide, windows in training and test: JCAS asks the validation images."""
    truth = write_dataset(tmp_path / "truth", count=12, size=(64, 80), seed=3, domain="source")
    parameters = {"ratio": 0.5, "dilate_share": 1.0}
    wide = corrupt(truth, noise="dilate_erode", parameters=parameters, out=tmp_path / "wide", progress=False)
    asked = []
    measure = OutlineBias.measure
    monkeypatch.setattr(
        OutlineBias, "measure", lambda self, **how: (asked.append(len(self._seen)), measure(self, **how))
    )
    state = crash_and_resume(small(wide, "jcas", crop=[48, 48]), tmp_path, monkeypatch)
    assert state["counts.roughness"][1] > 0 and asked and all(asked)


def crash_and_resume(config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The state that a run ends with, whether or not it was interrupted in its third epoch."""
    train(config, folder / "straight", progress=False)
    cls, at_start = method_class(config.method), method_class(config.method).start_epoch

    def crash(self: Method, epoch: int) -> None:
        if epoch == 2:
            raise MemoryError("power is gone")
        at_start(self, epoch)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(cls, "start_epoch", crash)
        train(config, folder / "crashed", progress=False)
    again = make_config(read_values(folder / "crashed" / "config.yaml"))
    train(again, folder / "crashed", resume=True, progress=False)
    straight, crashed = (read_run(folder / run).method.state_dict() for run in ("straight", "crashed"))
    assert straight.keys() == crashed.keys()
    assert all(torch.equal(straight[key], crashed[key]) for key in straight)
    return straight


@pytest.mark.parametrize(("name", "network"), [("raunet", "raunet"), ("lwanet", "lwanet"), ("css", "ocrnet")])
def test_a_run_with_a_small_network_of_its_own_is_read_back(name, network, noisy, tmp_path):
    train(small(noisy, name, epochs=1), tmp_path / "run", progress=False)
    run = read_run(tmp_path / "run")
    assert run.config.encoder == f"{network}:tiny" and run.config == run.config.resolved()
    assert sum(p.numel() for p in run.method.parameters()) < 1.5e6
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(value, stored[key]) for key, value in run.method.state_dict().items())
    assert run.method.predict(torch.rand(1, 3, 37, 50)).shape == (1, 4, 37, 50)


def test_trusted_images_of_the_dataset_reach_the_method(noisy, tmp_path):
    records = open_dataset(noisy).split("train")
    described = yaml.safe_load((noisy / "dataset.yaml").read_text())
    described["trusted"] = [records[0].id]
    for folder in ("images", "masks", "clean", "split.csv"):
        (tmp_path / folder).symlink_to(noisy / folder)
    (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(described))
    config = small(tmp_path, "mtcl").resolved()
    method = build_method(config, num_classes=4, channels=3)
    Engine(method, config, open_dataset(tmp_path))
    assert method.trusted == {records[0].id}


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
CHANNELS = 3  # in colour, or no witness takes part


def step_in_process(rank: int, store: str, wrong: str) -> None:
    """One of two processes: every method in each of its stages, after which both must hold the same weights."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    patience = timedelta(minutes=2)  # a process that lost the other fails, it does not wait for half an hour
    distributed.init_process_group("gloo", init_method=f"file://{store}", timeout=patience, rank=rank, world_size=2)
    seen = Batch(image=torch.rand(2, CHANNELS, 32, 40), noisy=torch.zeros(2, 32, 40, dtype=torch.long), ids=("c", "d"))
    seen.noisy[:, 8:24, 8:30] = 1  # validation images are the same for all
    for name, drawn in [*((name, False) for name in method_names()), ("jcas", True)]:
        torch.manual_seed(0)
        cls, options = method_class(name), method_options(name, {}, epochs=5)
        encoder = f"{cls.network}:tiny" if cls.network else "tiny"
        if name == "jcas_released":
            encoder = "resnet18"  # of which it freezes layers
        model = build_model(encoder, num_classes=3, channels=CHANNELS, **cls.model_options(encoder, **options))
        method = cls(model, 3, **options)
        assert all(p.requires_grad for p in model.parameters()) != (name == "jcas_released")
        parallel = DistributedDataParallel(method, find_unused_parameters=True)
        optimizer = torch.optim.SGD(method.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(rank)
        for epoch in (0, 1, 2):  # jcas warms up for two
            method.start_epoch(epoch)
            for _ in range(2):  # the second step begins with the first one's buffers on both
                noisy = torch.randint(0, 3, (2, 32, 40), generator=generator)
                if drawn:
                    noisy = noisy[:, :4, :5].repeat_interleave(8, 1).repeat_interleave(8, 2)
                image = torch.rand(2, CHANNELS, 32, 40, generator=generator)
                optimizer.zero_grad()
                parallel(Batch(image=image, noisy=noisy, ids=("a", "b")))["loss"].backward()
                optimizer.step()
            if name == "jcas" and drawn and epoch == 2:
                labelled = method.evidence.judged[:, 0].sum()  # of both processes, all batches
                if labelled != 2 * 2 * noisy.numel():
                    with Path(wrong).open("a") as file:
                        file.write(f"{labelled} labels were judged\n")
            method.end_epoch(epoch)
            with torch.no_grad():
                method.validation_loss(seen, method.segment(seen.image))
            method.end_validation()
            # Now, for the next step hands out the first one's buffers; running statistics wait for that.
            buffers = {key: value for key, value in method.named_buffers() if not key.endswith(STATISTICS)}
            mine = {**dict(method.named_parameters()), **method.matrices(), **buffers}
            if name == "jcas" and epoch == 2 and method.image_objects != drawn:
                mine["image_objects"] = torch.tensor(float(rank))  # to be reported
            own = torch.cat([value.detach().double().flatten() for value in mine.values()])
            first = own.clone()
            distributed.broadcast(first, src=0)  # all at once: a message for each tensor takes longer
            sizes = [value.numel() for value in mine.values()]
            for key, theirs, ours in zip(mine, first.split(sizes), own.split(sizes), strict=True):
                if not torch.allclose(theirs, ours, atol=1e-6):
                    with Path(wrong).open("a") as file:
                        file.write(f"{name}, epoch {epoch}: {key}\n")
    distributed.barrier()
    time.sleep(3)  # who leaves first closes the door on the other, who may still be on its way out of the barrier
    distributed.destroy_process_group()


def test_two_processes_stay_in_step_with_every_method(tmp_path):
    wrong = tmp_path / "wrong.txt"
    torch.multiprocessing.spawn(step_in_process, args=(str(tmp_path / "store"), str(wrong)), nprocs=2)
    assert not wrong.exists(), wrong.read_text()
