"""Runs the server: listens, prints the address, and releases everything when it stops."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn

from db import Store
from db.engine import database_url
from db.labels import LabelChoice
from db.read_only import open_read_only
from grader.catalog.problems import find_problems
from grader.catalog.requests import RequestReader
from grader.errors import UserError
from grader.options import GraderOptions
from grader.pool import GraderPool
from grader.report.site.pages import Frame
from grader.serve.app import make_app
from grader.serve.intake import Intake
from grader.serve.service import GradingService
from grader.serve.tokens import TOKEN_VARIABLE, Rate, Tokens, own_token, read_tokens

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PATIENCE_SECONDS = 3


@dataclass(frozen=True)
class Taking:
    """Settings of a server that takes and grades submissions."""

    options: GraderOptions
    gpus: str | None = None
    workers: int | None = None
    limit_seconds: float = 1800.0
    """A grading that takes longer is ended."""
    tokens: Path | None = None
    """A file with the tokens of authors."""
    rate: int = 3000
    """Requests a minute with one token."""

    def open_pool(self) -> GraderPool:
        """The pool that grades."""
        limit = self.limit_seconds
        say, gpus, workers = _warn, self.gpus, self.workers
        return GraderPool(self.options, gpus=gpus, workers=workers, say=say, limit_seconds=limit)


def run_server(
    database: str,
    *,
    host: str,
    port: int,
    taking: Taking | None,
    problem_folders: Sequence[Path],
    allowed_hosts: Sequence[str],
    labels: LabelChoice,
    frame: Frame,
) -> None:
    """Serve until SIGINT or SIGTERM. Raises UserError if the server cannot start.

    Without `taking`, submissions are not accepted.
    """
    token = own_token() if taking else ""
    if taking:
        tokens = Tokens(token, read_tokens(taking.tokens))
        catalog = find_problems(problem_folders)
        reader = RequestReader(catalog, taking.options)
        # Creates the database, which may not exist before the first submission.
        Store.open(database).close()
    with ExitStack() as stack:
        listening = stack.enter_context(_listen(host, port))
        store = stack.enter_context(open_read_only(database))
        intake = None
        if taking:
            service = stack.enter_context(GradingService(database, reader, taking.open_pool, _say))
            intake = Intake(service, tokens, Rate(taking.rate), catalog, taking.options)
        known = ("localhost", socket.gethostname(), host, *allowed_hosts)
        server: _Server
        app = make_app(
            store,
            Path(database_url(database).database or ""),
            intake=intake,
            hosts=known,
            labels=labels,
            frame=frame,
            stopping=lambda: server.should_exit,
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_PATIENCE_SECONDS,
        )
        announce = partial(_announce, database, host, listening.getsockname()[1], token)
        server = _Server(config, announce)
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Prints its address after its signal handlers are set: a caller may send a signal at once."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        # Errors of name resolution have numbers below zero, which are not errno values.
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number and number > 0 else str(error)
        raise UserError(
            f"{host}:{port}: cannot listen there ({reason}); choose another address with --host and --port"
        ) from error


def _announce(database: str, host: str, port: int, token: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    _say(f"serving {database} at http://{shown}:{port}/ (Ctrl-C stops it)")
    if token and TOKEN_VARIABLE not in os.environ:
        _say(f"token for submissions: {token}")
    if host not in _LOOPBACK:
        _say(
            f"warning: listening on {host}: everyone who can reach this machine can read every verdict and source"
            + (", and with the token, which is sent unencrypted, run code in the sandbox" if token else "")
        )


def _warn(message: str) -> None:
    _say(f"grader: {message}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
