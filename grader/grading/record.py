"""What is known so far about one submission, and the verdict that it becomes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from grader.grading.inspection import Inspected
from grader.grading.oracle.case import Case
from grader.grading.outcome import errors_first, streams_blamed
from grader.verdict.labels import labels
from grader.verdict.models import (
    BackwardResult,
    BuildResult,
    Diagnosis,
    Environment,
    ForwardResult,
    Problem,
    Settings,
    StageSeconds,
    StageStatus,
    Status,
    Submission,
    TimingResult,
    Verdict,
)


@dataclass
class Record:
    """Filled in by one stage after another."""

    build: BuildResult | None = None
    forward: ForwardResult | None = None
    backward: BackwardResult | None = None
    timing: TimingResult | None = None
    timed: Case | None = None
    diagnoses: list[Diagnosis] = field(default_factory=list)
    seconds: StageSeconds = field(default_factory=StageSeconds)
    peak_device_bytes: int | None = None
    inspected: Inspected = field(default_factory=Inspected)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Book the time that passes inside under a field of `StageSeconds`."""
        started = time.monotonic()
        try:
            yield
        finally:
            total = getattr(self.seconds, name) + time.monotonic() - started
            self.seconds = self.seconds.model_copy(update={name: total})

    def failed_while_timed(self, status: Status) -> Status:
        """What a stage passed is wrong in a timed call."""
        failed = {"status": StageStatus.FAILED}
        if status is Status.WRONG_BACKWARD and self.backward is not None:
            self.backward = self.backward.model_copy(update=failed)
        if status is Status.WRONG_OUTPUT and self.forward is not None:
            self.forward = self.forward.model_copy(update=failed)
        self.diagnoses = streams_blamed(self.diagnoses)
        return status

    def verdict(
        self, problem: Problem, submission: Submission, status: Status, settings: Settings, environment: Environment
    ) -> Verdict:
        """What the record says, with the status that was reached."""
        return Verdict(
            submission=submission.name,
            author=submission.author,
            label=submission.label,
            sample=submission.sample,
            problem=problem.id,
            device=settings.device,
            status=status,
            diagnoses=tuple(errors_first(self.diagnoses)),
            labels=labels(submission.source, problem.source, self.inspected.seen),
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
