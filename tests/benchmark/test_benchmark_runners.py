"""Cells in processes of their own and on Ray: killed and continued, and the same numbers everywhere."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jcas.benchmark import check_runner, plan, read_grid, run_grid, write_tables
from jcas.benchmark.worker import ABANDONED
from jcas.data.synthetic import write_dataset

SETTINGS = {"batch_size": 4, "threads": 1}
SECONDS = 180  # to wait for a process on a busy machine
EPOCHS = 12


@pytest.fixture(scope="module")
def truth(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("runners") / "truth", count=12, size=(40, 48), seed=1, domain="source")


def make_grid(truth: Path, out: Path, *, methods: tuple[str, ...] = ("baseline",), epochs: int = 1):
    settings = {**SETTINGS, "epochs": epochs}
    return plan(out, [truth], noises=["pair_flip:rate=0.3"], methods=methods, settings=settings, progress=False)


def numbers(out: Path) -> list[dict]:
    """The table without what depends on the machine's mood."""
    rows = json.loads((out / "table.json").read_text())["rows"]
    kept = ("cell", "method", "noise", "seed", "dice", "jac", "last_epoch", "selected_epoch", "gap_recovered")
    return [{key: row[key] for key in kept} for row in rows]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def workers() -> list[int]:
    """Process ids of the cells that this process has started."""
    mine = ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())]
    listed = subprocess.run(mine, capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(line.split()[0]) for line in listed if "jcas.benchmark.worker" in line]


@pytest.fixture(scope="module")
def uninterrupted(truth, tmp_path_factory) -> dict:
    grid = make_grid(truth, tmp_path_factory.mktemp("whole") / "out", epochs=EPOCHS)
    assert run_grid(grid, runner="inline", progress=False) == []
    write_tables(grid)
    return numbers(grid.out)


def test_a_cell_leaves_with_its_grid_and_continues_from_its_checkpoint(truth, tmp_path, uninterrupted):
    grid = make_grid(truth, tmp_path / "out", epochs=EPOCHS)
    (cell,) = grid.cells
    job = {"config": grid.config(cell).model_dump(mode="json"), "folder": str(grid.folder(cell))}
    worker = subprocess.Popen([sys.executable, "-m", "jcas.benchmark.worker"], stdin=subprocess.PIPE)
    try:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(job).encode() + b"\n")
        worker.stdin.flush()
        wait_for(grid.folder(cell) / "checkpoints" / "last.ckpt")
        worker.stdin.close()  # what happens when the grid is killed
        assert worker.wait(timeout=SECONDS) == ABANDONED
    finally:
        worker.kill()
    before = (grid.folder(cell) / "metrics.jsonl").read_text().splitlines()
    assert 1 <= len(before) < EPOCHS and not grid.is_finished(cell)

    assert run_grid(read_grid(grid.out), runner="inline", progress=False) == []
    write_tables(grid)
    after = (grid.folder(cell) / "metrics.jsonl").read_text().splitlines()
    assert after[0] == before[0] and len(after) == EPOCHS, "a finished epoch is not run again"
    assert numbers(grid.out) == uninterrupted


def test_a_cell_whose_checkpoint_cannot_be_used_keeps_it_and_says_what_to_do(truth, tmp_path):
    grid = make_grid(truth, tmp_path / "out")
    (cell,) = grid.cells
    left = grid.folder(cell) / "checkpoints" / "last.ckpt"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of an older version")
    (grid.folder(cell) / "config.yaml").write_text("")
    assert run_grid(grid, runner="inline", progress=False) == [cell]
    assert "remove the folder of the run to start afresh" in grid.error(cell)
    assert left.read_bytes() == b"of an older version"


@pytest.mark.parametrize("runner", ["inline", "local"])
def test_a_cell_of_a_method_that_is_gone_fails_for_itself(truth, tmp_path, runner):
    grid = make_grid(truth, tmp_path / "out", methods=("baseline", "volmin"))
    described = (grid.out / "grid.json").read_text()
    (grid.out / "grid.json").write_text(described.replace('"method": "baseline"', '"method": "long_gone"'))
    grid = read_grid(grid.out)
    gone, stays = sorted(grid.cells, key=lambda cell: cell.method != "long_gone")
    assert run_grid(grid, runner=runner, progress=False) == [gone]
    assert "long_gone" in grid.error(gone) and grid.is_finished(stays)


def test_a_killed_process_is_recorded_and_stops_no_other_cell(truth, tmp_path):
    grid = make_grid(truth, tmp_path / "out", methods=("baseline", "volmin"))

    def kill_two_workers() -> None:
        for cell in grid.cells:
            wait_for(grid.out / "logs" / f"{cell.name}.log")
            deadline = time.monotonic() + SECONDS
            while not (pids := workers()) and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_two_workers)
    killer.start()
    failed = run_grid(grid, runner="local", progress=False)
    killer.join()
    assert failed == list(grid.cells)
    for cell in grid.cells:
        assert (grid.error(cell) or "").startswith("the process of this cell was killed by signal 9")


def test_ray_gives_the_table_of_the_local_runner(truth, tmp_path):
    ray = pytest.importorskip("ray")
    methods = ("upper_bound", "baseline")
    grids = {name: make_grid(truth, tmp_path / name, methods=methods) for name in ("local", "ray")}
    for name, grid in grids.items():
        assert run_grid(grid, runner=name, jobs=1, progress=False) == [], grid.cells
        write_tables(grid)
    assert not ray.is_initialized(), "the grid takes down what it started"
    assert numbers(grids["ray"].out) == numbers(grids["local"].out)
    assert len(numbers(grids["ray"].out)) == 2


def test_an_address_where_no_ray_answers_is_told_at_once():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and deaf: nothing listens
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        before = time.monotonic()
        for text in (address, f"ray://{address}", "127.0.0.1:99999"):
            with pytest.raises(ValueError, match=f"no Ray answers at --address {text}: ") as refusal:
                check_runner("ray", text)
            assert "\n" not in str(refusal.value)
    assert time.monotonic() - before < 30
    check_runner("ray", "auto")  # Ray's own word
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        check_runner("ray", f"127.0.0.1:{somebody.getsockname()[1]}")
