"""A queue that grades submissions one after another with `grader grade`."""

from __future__ import annotations

import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.errors import UserError
from grader.options import GraderOptions

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._\-]*"
"""Allowed names of authors and labels, which become parts of a file name."""

TOKEN_VARIABLE = "GRADER_TOKEN"

_NAME = re.compile(NAME_PATTERN)
_MOST_NAME = 64
_MOST_WAITING = 20
_MOST_KEPT = 1000
_PATIENCE_SECONDS = 15.0
"""Time for a grading to end its workers when it is stopped."""

LIMIT_SECONDS = 1800.0
"""Time for one grading: every job has a limit of its own, but a grading has hundreds, and others are waiting."""


class QueueFull(Exception):
    """The queue accepts no more submissions now."""


@dataclass
class Job:
    """One queued submission and its state."""

    id: str
    """A random id, so that it cannot be guessed."""
    author: str
    problem: str
    label: str | None
    quick: bool
    source: str
    state: Literal["waiting", "grading", "done", "failed"] = "waiting"
    verdict_id: int | None = None
    message: str | None = None
    """Why it failed, in one line."""


class GradingQueue:
    """A context manager whose thread grades one job at a time; leaving it ends the grading in progress."""

    def __init__(self, database: str, problem_folders: Sequence[Path], limit_seconds: float = LIMIT_SECONDS) -> None:
        """A grading that takes longer than `limit_seconds` is stopped, and its job has failed."""
        self._database, self._problem_folders, self._limit_seconds = database, problem_folders, limit_seconds
        self._waiting: queue.Queue[Job | None] = queue.Queue()
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> GradingQueue:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
            process = self._process
        self._waiting.put(None)
        if process is not None:
            _end(process)
        self._thread.join()

    def put(self, *, author: str, problem: str, label: str | None, quick: bool, source: str) -> Job:
        """Queue a submission. Raises QueueFull, and UserError for a name that is not allowed."""
        for what, name in (("author", author), ("label", label)):
            if name is not None and not (len(name) <= _MOST_NAME and _NAME.fullmatch(name)):
                raise UserError(
                    f"{what} {name[:_MOST_NAME]!r}: use up to {_MOST_NAME} letters, digits, '.', '_' or '-'"
                )
        job = Job(secrets.token_urlsafe(16), author, problem, label or None, quick, source)
        with self._lock:
            if sum(one.state == "waiting" for one in self._jobs.values()) >= _MOST_WAITING:
                raise QueueFull
            self._jobs[job.id] = job
            for old in [one.id for one in self._jobs.values() if one.state in ("done", "failed")][:-_MOST_KEPT]:
                del self._jobs[old]
        self._waiting.put(job)
        return job

    def get(self, job_id: str) -> Job | None:
        """A job by its id, while it is remembered."""
        return self._jobs.get(job_id)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            job.state = "grading"
            try:
                job.verdict_id = self._grade(job)
                job.state = "done"
            except Exception as error:
                job.message, job.state = str(error) or type(error).__name__, "failed"
            job.source = ""

    def _grade(self, job: Job) -> int:
        with tempfile.TemporaryDirectory(prefix="grader-submitted-") as folder:
            stem = job.problem.rpartition("/")[2] + (f"__{job.label}" if job.label else "")
            path = Path(folder) / job.author / f"{stem}.py"
            path.parent.mkdir()
            path.write_text(job.source, encoding="utf-8")
            with self._lock:
                if self._closing:
                    raise UserError("the server is stopping; submit again later")
                # In its own session, so that Ctrl-C reaches only the server, which then ends the grading.
                self._process = process = subprocess.Popen(
                    self._command(job, path),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env={name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
                    start_new_session=True,
                )
            late = False
            try:
                output, errors = process.communicate(timeout=self._limit_seconds)
            except subprocess.TimeoutExpired:
                late = True
                _end(process)
                output, errors = process.communicate()
            with self._lock:
                self._process = None
        if late:
            raise UserError(f"stopped after {self._limit_seconds:g} s, which is the limit for one grading here")
        lines = output.splitlines()
        if not lines:
            raise UserError(_last_line(errors) or f"the grader exited with status {process.returncode} and no message")
        return int(json.loads(lines[-1])["verdict_id"])

    def _command(self, job: Job, path: Path) -> list[str]:
        # -P: no module of the current folder is imported in place of an installed one.
        command = [sys.executable, "-P", "-m", "grader", "grade", str(path), "--problem", job.problem, "--json"]
        command += ["--author", job.author]
        command += ["--db", self._database]
        for folder in self._problem_folders:
            command += ["--problems", str(folder)]
        return [*command, *GraderOptions(quick=job.quick).arguments()]


def _end(process: subprocess.Popen[str]) -> None:
    """Terminate a grading; kill its session if it does not end in time."""
    process.terminate()
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
