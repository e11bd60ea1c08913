"""The command line. Verdicts and tables go to stdout, everything else to stderr.

Exit status: 0 when everything requested was done, whatever the verdicts say; 1 when the grader itself failed on
something; 2 for a request that cannot be carried out; 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from grader import __version__
from grader.cli._commands import LazyGroup
from grader.ending import end_on
from grader.errors import GraderError, UserError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="grader",
    cls=LazyGroup,
    help="Check and benchmark untrusted GPU kernels: do they build, do forward and backward match, how fast are they?",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=True,
)


def main() -> None:
    """Run the command line and exit."""
    end_on((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        app()
    except GraderError as error:
        from grader.report.console import one_line  # imports rich, which `--help` does without

        print(f"grader: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        print(f"grader: {error.filename or 'the output'} could not be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the interpreter flushes the rest to
        sys.exit(1)
    finally:
        gc.freeze()  # the interpreter's last collections take a second after an import of torch


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="Log to stderr from this level on: debug, info, warning or error."),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Append the log to this file as JSON lines; from info on, or --log-level."),
    ] = None,
) -> None:
    if log_level is not None or log_file is not None:
        from grader.cli._logging import start_logging

        start_logging(log_level, log_file)
