"""The whole road in minutes, on data drawn on the spot: what `make demo` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from jcas.config import Config
from jcas.corrupt import corrupt
from jcas.data.synthetic import write_dataset
from jcas.engine import train
from jcas.report import build_report

IMAGES, SIZE, EPOCHS = 160, (128, 160), 16


def run_demo(out: Path, *, seed: int = 0) -> tuple[list[dict[str, Any]], Path]:
    """Synthetic instruments, ellipse noise, baseline and JCAS, and a report; returns results and the page."""
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out}: exists and is not empty; remove it or choose another --out")
    console = Console(stderr=True)
    console.print(f"[bold]1/4[/bold] drawing {IMAGES} scenes with exact masks")
    truth = write_dataset(out / "data" / "truth", count=IMAGES, size=SIZE, seed=seed, domain="source")
    console.print("[bold]2/4[/bold] replacing training masks by ellipses")
    noisy = corrupt(truth, noise="ellipse", out=out / "data" / "ellipse", seed=seed)
    results, runs = [], []
    for method in ("baseline", "jcas"):
        console.print(f"[bold]3/4[/bold] training {method}")
        # One thread: so small a network gains little by a second, and on a busy machine threads wait for each other.
        config = Config(
            data=str(noisy), method=method, encoder="tiny", epochs=EPOCHS, batch_size=4, seed=seed, threads=1
        )
        runs.append(out / method)
        result = train(config, runs[-1])
        assert result is not None, "the demo trains in one process"
        results.append(result)
    console.print("[bold]4/4[/bold] writing the report")
    page = build_report(runs, out / "report.html", title="JCAS demo: instruments with ellipse labels")
    return results, page
