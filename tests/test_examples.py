"""Every file of examples/ runs as its first lines say, and prints what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(name: str, folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == [], "an example leaves no file behind"
    return done.stdout


def losses(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"loss (\d+\.\d+)", text)]


def test_plain_loop_prints_a_falling_loss(tmp_path):
    values = losses(run("loss_in_your_loop.py", tmp_path))
    assert len(values) == 5 and values[-1] < values[0]


def test_lightning_module_prints_a_falling_loss_and_the_matrix(tmp_path):
    text = run("loss_in_lightning.py", tmp_path)
    values = losses(text)
    assert len(values) == 8 and values[-1] < values[0]
    assert "learnt matrix: [[0." in text


def test_noise_rates_are_those_of_the_paper_map(tmp_path):
    # By hand for T of 0.7 and 0.1: same stays same 0.49 + 3 * 0.01, different becomes same 2 * 0.07 + 2 * 0.01; with
    # four balanced classes 0.25 * 0.48 + 0.75 * 0.16 = 0.24. The surgical prior is the one of docs/PAPER.md, rounded.
    text = run("noise_rates.py", tmp_path)
    assert "balanced: wrong pixels 30.0%, wrong pairs 24.0%: pairs are cleaner" in text
    assert re.search(r"surgical: wrong pixels 30\.0%, wrong pairs 3[89]\.\d%: pairs are noisier", text)
    assert "[[0.84, 0.16], [0.48, 0.52]]" in text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_names_its_command_and_is_tested_here(path):
    text = path.read_text("utf-8")
    assert f"python examples/{path.name}" in text.split('"""')[1]
    assert f'run("{path.name}"' in Path(__file__).read_text("utf-8")
