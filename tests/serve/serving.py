"""`grader serve` as tests run it: a process of its own on a free port, and who asks it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import Message
from pathlib import Path
from threading import Thread
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
CHEAP = """
import grader.pool.dispatch, grader.pool.pool, grader.serve.service
grader.pool.pool.ENGINE = "tests.pool.engine:CheapGrader"
grader.pool.dispatch.POLL_SECONDS = grader.serve.service.LOOK_SECONDS = 0.1
import grader.cli
grader.cli.main()
"""
"""The command line with a grader that needs no workers. What the server waits for is noticed within a tenth of a
second."""


class Server:
    """`grader serve` on a free port. A context manager that asks it to end, and waits for it."""

    def __init__(
        self,
        database: Path,
        *arguments: str,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("-m", "grader"),
        port: str = "0",
        **environment: str,
    ) -> None:
        self.database = database
        python = [*prefix, sys.executable, *program]
        command = [*python, "serve", "--db", str(database), "--port", port, *arguments]
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self._stderr = self.process.stderr
        self.said: list[str] = []
        first = self._stderr.readline()
        address = re.search(r"http://\S+/", first)
        assert address, first + self._stderr.read()
        self.said.append(first)
        self.address = address[0]
        self._reader = Thread(target=lambda: self.said.extend(self._stderr))
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)

    def end(self, number: int) -> tuple[int, float]:
        """Send the signal; returns the exit status and how long it took."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(30)
        self._reader.join()
        self._stderr.close()
        return status, time.monotonic() - started

    def ask(self, path: str, *, data: bytes | None = None, **headers: str) -> tuple[int, Message, str]:
        """Status, headers and text."""
        request = urllib.request.Request(self.address + path.lstrip("/"), data=data, headers=headers)
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def json(self, path: str) -> Any:
        """An answer of the API that has to succeed."""
        status, _, text = self.ask(path)
        assert status == 200, text
        return json.loads(text)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return


class Events:
    """Reads server-sent events one by one."""

    def __init__(self, server: Server, query: str = "", **headers: str) -> None:
        self._answer = urllib.request.urlopen(
            urllib.request.Request(f"{server.address}events{query}", headers=headers), timeout=20
        )

    def next(self, kind: str) -> tuple[str | None, Any]:
        """The next event of a kind: its id and its data."""
        found: dict[str, str] = {}
        for line in self._answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif found.get("event") == kind:
                return found.get("id"), json.loads(found["data"])
            else:
                found = {}
        raise AssertionError("the server closed the connection")

    def close(self) -> None:
        self._answer.close()


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grader", "serve", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
