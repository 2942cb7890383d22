"""The command line, one file a verb: a command parses, calls once and prints; nothing else prints.

Heavy libraries are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from polyformer.cli.bases import bases
from polyformer.cli.compare import compare
from polyformer.cli.datasets import datasets
from polyformer.cli.export import export
from polyformer.cli.filters import filters
from polyformer.cli.import_graph import import_command
from polyformer.cli.models import models
from polyformer.cli.predict import predict
from polyformer.cli.report import report
from polyformer.cli.reproduce import reproduce
from polyformer.cli.serve import serve
from polyformer.cli.tokens import tokens
from polyformer.cli.train import train
from polyformer.cli.tune import tune
from polyformer.cli.update import update
from polyformer.cli.verify import verify
from polyformer.errors import PolyformerError
from polyformer.interrupts import EXIT_CODE, is_first_worker
from polyformer.machine import is_out_of_memory

__all__ = ["app", "main"]

app = typer.Typer(
    name="polyformer",
    help="Learn on the nodes of a graph with node-wise spectral filters.\n\n"
    "Start with `polyformer train`, which needs no data; then `polyformer train PATH` on your own graph.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    train,
    predict,
    report,
    compare,
    filters,
    export,
    serve,
    tokens,
    update,
    tune,
    reproduce,
    datasets,
    models,
    bases,
    verify,
):
    app.command()(verb)
app.command("import")(import_command)

_READING = (
    "train",
    "predict",
    "report",
    "compare",
    "filters",
    "export",
    "tokens",
    "update",
    "tune",
    "import",
    "verify",
    "serve",
)
"""Verbs that map files into memory."""

_UsageError: type[Any] = typer.BadParameter.__mro__[1]


def _version(value: bool) -> None:
    if value:
        from polyformer.version import __version__

        print(f"polyformer {__version__}", flush=True)
        raise typer.Exit


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line. An error is one sentence on stderr; the exit code is 1 for a failure, 2 for bad input and
    130 for an interruption."""
    _share_cores()
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        if arguments and arguments[0] in _READING and not {"-h", "--help"} & set(arguments):
            _answer_bus_errors()
        code = app(arguments, prog_name="polyformer", standalone_mode=False)
        if code == EXIT_CODE:  # Typer gives this code after Ctrl-C and prints nothing
            raise KeyboardInterrupt
    except PolyformerError as error:
        if debug:
            raise
        sys.exit(_fail(str(error), error.exit_code))
    except _UsageError as error:
        hint = " ".join(["polyformer", *arguments[:1], "--help"]) if arguments else "polyformer --help"
        sys.exit(_fail(f"{error.format_message()} Try '{hint}'.", 2))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(_fail("Interrupted.", EXIT_CODE))
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        if is_out_of_memory(error):
            sys.exit(_fail("There is not enough memory for this. Close other programs, or lower --memory or sizes.", 1))
        if isinstance(error, OSError) and error.strerror:
            place = f" '{error.filename}'" if error.filename else " a file"
            sys.exit(_fail(f"The system refused{place}: {error.strerror}. Check the disk, then run again.", 1))
        sys.exit(_fail(f"Unexpected {type(error).__name__}: {error} Run again with --debug and report it.", 1))
    sys.exit(code or 0)


def _answer_bus_errors() -> None:
    """End with a sentence, as for every damaged file, where a mapped file is cut off while it is read."""
    from polyformer.errors import FileCorrupt
    from polyformer.native import answer_bus_errors

    answer_bus_errors(FileCorrupt.exit_code)


def _share_cores() -> None:
    """Let idle threads sleep soon instead of spinning, unless the user has set OMP_WAIT_POLICY.

    The function must run before OpenMP is loaded, which reads the variable once.

    Spinning made training more than ten times slower on cores that other programs use too.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _fail(message: str, code: int) -> int:
    if is_first_worker():
        print(f"polyformer: {' '.join(message.split())}", file=sys.stderr)
    return code
