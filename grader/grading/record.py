"""Collects the results for one submission and makes its verdict."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from grader.catalog.requests import Request
from grader.grading.inspection import Inspected
from grader.grading.oracle.case import Case
from grader.grading.status import errors_first, status_of, streams_blamed
from grader.machine import turns
from grader.machine.backends import backend
from grader.verdict.labels import labels
from grader.verdict.models import Diagnosis, Environment, Settings, Status, Verdict
from grader.verdict.stages import BackwardResult, BuildResult, ForwardResult, StageSeconds, StageStatus, TimingResult

log = logging.getLogger(__name__)

TimedStage = Literal["build", "start", "forward", "backward", "timing", "inspection"]
"""A field of `StageSeconds`."""


@dataclass
class Record:
    """Filled in by one stage after another."""

    request: Request
    build: BuildResult | None = None
    forward: ForwardResult | None = None
    backward: BackwardResult | None = None
    timing: TimingResult | None = None
    timed: Case | None = None
    """The case that the times are of."""
    fewer_rows: bool = False
    """Whether the first cases have fewer rows than the problem's inputs."""
    whole_backward: bool = True
    """Whether the reference has gradients of the full size too."""
    float64_is_slow: bool = False
    """Whether the reference's float64 run at full size was left out for want of time alone."""
    large: bool = False
    """Whether the problem takes so much memory that asking for less may help where it runs out."""
    diagnoses: list[Diagnosis] = field(default_factory=list)
    seconds: StageSeconds = field(default_factory=StageSeconds)
    peak_device_bytes: int | None = None
    memory_withheld: bool = False
    """Whether memory ran out, and the submission had less of the device's own than the reference takes."""
    inspected: Inspected = field(default_factory=Inspected)

    @contextmanager
    def stage(self, name: TimedStage) -> Iterator[None]:
        """Add the time that passes inside to a field of `StageSeconds`, and log it with the stage's status.

        On the CPU, timing waits until no other grading process of the machine is inside a stage.
        """
        apart = name == "timing" and backend(self.request.device).on_host
        with turns.alone() if apart else turns.shared():
            started, status = time.monotonic(), "stopped"
            try:
                yield
                result = getattr(self, name, None)
                status = "done" if result is None else result.status.value
            finally:
                seconds = time.monotonic() - started
                self.seconds = self.seconds.model_copy(update={name: getattr(self.seconds, name) + seconds})
                self._log(f"{name} {status}", seconds, stage=name, status=status)

    def _log(self, event: str, seconds: float, **fields: str) -> None:
        name = self.request.submission.name
        extra = {"submission": name, "device": self.request.device.value, "seconds": round(seconds, 4), **fields}
        log.info("%s: %s in %.2f s", name, event, seconds, extra=extra)

    @property
    def status(self) -> Status:
        """The verdict's status, as far as it is known."""
        return status_of(self.diagnoses)

    def fail_later(self, diagnoses: Sequence[Diagnosis]) -> None:
        """Mark the stage that these errors belong to as failed, although it passed its own checks."""
        failed, status = {"status": StageStatus.FAILED}, status_of(diagnoses)
        if status is Status.WRONG_BACKWARD and self.backward is not None:
            self.backward = self.backward.model_copy(update=failed)
        if status is Status.WRONG_OUTPUT and self.forward is not None:
            self.forward = self.forward.model_copy(update=failed)

    def add_late(self, found: Diagnosis | None) -> bool:
        """Add what was found after timing, if anything; whether it is an error, which leaves no time."""
        if found is None:
            return False
        self.diagnoses.insert(len(self.diagnoses) if found.severity == "info" else 0, found)
        if found.severity == "error":
            self.timing = None
            self.fail_later([found])
        return found.severity == "error"

    def fail_timing(self, diagnoses: Sequence[Diagnosis]) -> None:
        """A timed call was wrong, as these diagnoses say."""
        self.fail_later(diagnoses)
        self.diagnoses = streams_blamed([*self.diagnoses, *diagnoses])

    def verdict(self, settings: Settings, environment: Environment) -> Verdict:
        """The verdict that the record amounts to."""
        status = self.status
        self._log(f"{status}", sum(self.seconds.model_dump().values()), stage="verdict", status=status.value)
        problem, submission = self.request.problem, self.request.submission
        return Verdict(
            submission=submission.name,
            author=submission.author,
            label=submission.label,
            sample=submission.sample,
            problem=problem.id,
            device=settings.device,
            status=status,
            diagnoses=tuple(errors_first(self.diagnoses)),
            labels=labels(
                submission.source,
                problem.source,
                self.inspected.seen,
                codes={diagnosis.code for diagnosis in self.diagnoses},
                languages=self.request.languages,
                precision=settings.precision,
            ),
            kernels=self.inspected.kernels,
            build=self.build,
            forward=self.forward,
            backward=self.backward,
            timing=self.timing,
            seconds=self.seconds,
            peak_device_bytes=self.peak_device_bytes,
            environment=environment,
            settings=settings,
            source_hash=submission.source_hash,
            problem_hash=problem.source_hash,
            created_at=datetime.now(UTC),
        )
