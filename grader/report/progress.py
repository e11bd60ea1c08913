"""Progress of a batch: verdicts on stdout, a bar on stderr if that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from db.presence import RunProgress
from grader.batch.reached import Reached
from grader.errors import NotGraded
from grader.report.console import console, one_line
from grader.report.json_csv import json_line
from grader.report.text import plain_line, verdict_line
from grader.report.work import about as about_work
from grader.verdict.models import Status, Verdict


class BatchProgress:
    """A context manager that shows each verdict, or why there is none. `total` is None if unknown."""

    def __init__(self, total: int | None, *, as_json: bool) -> None:
        self._as_json = as_json
        self._stdout = console(sys.stdout)
        self._stderr = console(sys.stderr)
        self.reached = Reached()
        self._total, self._shown = total, 0
        self._bar = Progress(
            TextColumn("grading"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[about]}"),
            console=self._stderr,
            disable=not sys.stderr.isatty(),
            transient=True,
            # Otherwise rich redirects prints to the terminal, also if stdout is a file.
            redirect_stdout=False,
        )
        self._task = self._bar.add_task("grading", total=total, about="")
        self.refused = 0
        """Lines that cannot be graded."""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, verdict: Verdict, tag: object = None) -> None:
        """Print a verdict and advance the bar."""
        if self._as_json:
            print(json_line(verdict), flush=True)
            self._note(verdict)
        elif self._stdout.is_terminal and self._stderr.is_terminal:
            # stdout and stderr share a terminal: the bar would overwrite lines that bypass its console.
            self._bar.console.print(verdict_line(verdict))
        elif self._stdout.is_terminal:
            self._stdout.print(verdict_line(verdict), soft_wrap=True)
        else:
            print(plain_line(verdict), flush=True)
        self._advance(verdict.status)

    def drop(self, reason: NotGraded, tag: object = None) -> None:
        """Say that there will be no verdict."""
        self.warn(str(reason))
        self._advance(None)

    def work(self) -> RunProgress:
        """The batch's present work, as others see it."""
        return self.reached.work(None if self._total is None else self._total - self._shown)

    def _advance(self, status: Status | None) -> None:
        self.reached.note(status)
        self._step()

    def _step(self) -> None:
        self._shown += 1
        about = "" if self._bar.disable else about_work(self.work())
        self._bar.update(self._task, advance=1, about=about)

    def refuse(self, message: str) -> None:
        """Print why a line or file cannot be graded; the batch continues."""
        self.refused += 1
        self.warn(message)
        self._step()

    def say(self, message: str) -> None:
        """Print a line on stderr, above the bar."""
        self._bar.console.print(one_line(message), soft_wrap=True)

    def warn(self, message: str) -> None:
        """Print a message of the program on stderr, above the bar."""
        self.say(f"grader: {message}")

    def _note(self, verdict: Verdict) -> None:
        if not self._stdout.is_terminal:
            self._stderr.print(verdict_line(verdict), soft_wrap=True)
