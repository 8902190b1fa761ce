"""The app with its commands, and ``main``, which runs it and turns errors into one line and an exit code."""

from __future__ import annotations

import difflib
import os
import sys
from typing import Annotated

import typer

from jcas.cli.comparison import benchmark, report
from jcas.cli.dataset import corrupt, synth
from jcas.cli.demo import demo
from jcas.cli.inference import evaluate, predict
from jcas.cli.methods import methods
from jcas.cli.options import EPILOGS
from jcas.cli.output import complain
from jcas.cli.repair import audit, review
from jcas.cli.training import train

_INTERRUPTED = 130

app = typer.Typer(
    name="jcas",
    help="Train medical image segmentation on masks nobody can trust.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order of `jcas --help`.
for command in (synth, corrupt, train, methods, evaluate, predict, report, audit, review, benchmark, demo):
    app.command(epilog=EPILOGS[command])(command)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from jcas.version import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point of the ``jcas`` command."""
    try:
        code = app(standalone_mode=False)
        if code == _INTERRUPTED:  # typer's word for a KeyboardInterrupt
            complain("stopped; train continues from its last epoch with --resume, a benchmark with the same command")
    except (ValueError, OSError, RuntimeError) as error:
        if not _is_users(error) or os.environ.get("JCAS_DEBUG"):  # JCAS_DEBUG=1 shows where an error came from
            raise
        complain(_one_line(error))
        code = 2
    except Exception as error:
        if not hasattr(error, "format_message"):  # not a complaint of the argument parser
            raise
        if message := _usage(error):  # empty after `jcas` alone, which has printed its help
            complain(message)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _is_users(error: Exception) -> bool:
    """Whether an error tells the user something to act on: bad input, a file system, a run that cannot go on."""
    if not isinstance(error, RuntimeError):
        return True
    from jcas.engine import TrainingError  # takes seconds: a typo must not wait for it

    return isinstance(error, TrainingError)


def _one_line(error: Exception) -> str:
    text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
    return " ".join(text.split())


def _usage(error: Exception) -> str:
    """The parser's complaint, with the nearest flag of the command if one was unknown."""
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    unknown = getattr(error, "option_name", None)
    if (
        unknown
        and message.startswith("No such option")
        and not any(hint in message.lower() for hint in ("did you mean", "possible options"))
    ):
        command = typer.main.get_command(app)
        called = getattr(command, "commands", {}).get(sys.argv[1] if len(sys.argv) > 1 else "")
        known = [flag for parameter in getattr(called, "params", []) for flag in parameter.opts]
        near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.0)
        message += f" Did you mean {near[0]}?" if near else ""
    return message
