"""The command line. Verdicts and tables go to stdout, everything else to stderr.

Exit status: 0 when everything asked for was done, whatever the verdicts say; 1 when the grader itself failed on
something; 2 for a request that cannot be carried out; 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Annotated

import typer

from grader import __version__
from grader.cli import boards, exporting, grading, pages, problems, selftest, serving, showing
from grader.errors import GraderError, UserError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="grader",
    help="Grade GPU kernels that nobody has read yet: does it build, does the forward match, does the backward match, "
    "how fast is it?",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
)

app.command()(grading.grade)
app.command()(showing.show)
app.command(name="leaderboard")(boards.show_leaderboard)
app.command()(pages.report)
app.command()(serving.serve)
app.command()(exporting.export)
app.add_typer(problems.app, name="problems")
app.command()(showing.doctor)
app.command()(selftest.selftest)


def main() -> None:
    """Run the command line and exit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except GraderError as error:
        print(f"grader: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        print(f"grader: {error.filename or 'the output'} could not be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the interpreter flushes the rest to
        sys.exit(1)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit
