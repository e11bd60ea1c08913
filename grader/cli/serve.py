"""`grader serve`: serves the report from the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grader.cli._board_options import (
    Everything,
    Having,
    Introduction,
    Languages,
    OfPrecision,
    Title,
    Without,
    label_choice,
    site_frame,
)
from grader.cli._options import takes_grader_options
from grader.errors import UserError
from grader.options import COMMAND_LINE_OPTIONS, GraderOptions
from grader.verdict.precision import Precision

SERVED_OPTIONS = tuple(
    name for name in COMMAND_LINE_OPTIONS if name not in ("precision", "variant", "device_index", "baselines")
)
"""Options of gradings that a server has; `--precision` here selects what its pages rank."""


@takes_grader_options(SERVED_OPTIONS)
def serve(
    db: Annotated[str, typer.Option("--db", metavar="PATH|URL", help="The database with the verdicts.")] = "grader.db",
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 accepts other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects any free port.")] = 8000,
    submit: Annotated[
        bool, typer.Option("--submit", help="Accept submissions with a token (GRADER_TOKEN, or printed).")
    ] = False,
    problems: Annotated[
        list[Path] | None,
        typer.Option("--problems", metavar="DIR", help="Also accept submissions for its problems; may be repeated."),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="all|N,...", help="Grade on these GPUs; by default on all, or on the CPU.")
    ] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Grade on the CPU with N processes.")] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tokens of authors, AUTHOR TOKEN on each line, beside the server's own."),
    ] = None,
    rate: Annotated[int, typer.Option(metavar="N", min=1, help="Requests a minute that one token may send.")] = 3000,
    limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1.0, help="Stop the grading of a sent submission that takes longer."),
    ] = 1800.0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another host name of this server; may be repeated."),
    ] = None,
    having: Having = None,
    without: Without = None,
    language: Languages = None,
    everything: Everything = False,
    precision: OfPrecision = Precision.FP32,
    title: Title = None,
    introduction: Introduction = None,
    *,
    options: GraderOptions,
) -> None:
    """Serve that site live, and grade what programs send.

    It has a page that shows a batch's progress, filters over all verdicts, and a JSON API.

    With --submit it grades what programs and a form send, on all GPUs or as --gpus and --workers say, with the options
    of a grading that are given here. What waits is in the database, and a server that is started again goes on.

    --having, --without and --all select what the pages rank, as for `grader report`; /api/leaderboard has parameters of
    the same names.

    \b
    Examples:
      grader serve
      grader serve --db runs/grader.db --port 8080
      grader serve --without vendor_library
      GRADER_TOKEN=$(openssl rand -hex 16) grader serve --submit --quick
      grader serve --submit --tokens tokens.txt --gpus 0,1
    """
    try:
        from grader.serve.run import Taking, run_server
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] not in ("fastapi", "uvicorn", "starlette", "prometheus_client"):
            raise
        raise UserError(
            f"serving needs {error.name}; install it with `pip install '.[serve]'` in the grader's checkout"
        ) from error
    run_server(
        db,
        host=host,
        port=port,
        taking=Taking(options, gpus, workers, limit, tokens, rate) if submit else None,
        problem_folders=problems or (),
        allowed_hosts=allow_host or (),
        labels=label_choice(having, without, language, everything, precision),
        frame=site_frame(title, introduction, compares=True),
    )
