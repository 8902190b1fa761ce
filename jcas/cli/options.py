"""Options that several commands take, in the same words, and the examples below their help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

DataFolder = Annotated[Path, typer.Argument(help="Dataset folder: images/, masks/, optional clean/, split.csv ...")]
RunFolder = Annotated[Path, typer.Argument(help="Run folder of `jcas train`.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every random choice.")]
NOISE_NAMES = "symmetric, asymmetric, pair_flip, matrix, ellipse, dilate_erode, markov, polygon, sfda"
SET_WANTS = "--set wants NAME=VALUE"

Command = TypeVar("Command", bound=Callable[..., None])
EPILOGS: dict[Callable[..., None], str] = {}


def examples(*lines: str) -> Callable[[Command], Command]:
    """Calls that the help of the decorated command ends with."""

    def remember(command: Command) -> Command:
        EPILOGS[command] = "[dim]Example:[/dim]\n\n" + "\n\n".join(f"  [cyan]{line}[/cyan]" for line in lines)
        return command

    return remember
