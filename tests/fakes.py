"""A grader without workers, at the seam that the command line calls."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, Self

from grader.verdict.models import Device, Environment, Problem, Settings, Status, Submission, Verdict
from tests import samples

Work = tuple[Problem, Submission]


class FakeGrader:
    """Reads the status that it is to give from the source's first line (`# status: wrong_output`)."""

    seconds_each = 0.0
    graded: list[str] = []
    """Names, in order, over all instances; tests clear it."""

    def __init__(
        self,
        *,
        device: str,
        sandbox: Literal["auto", "bubblewrap", "weak"],
        quick: bool,
        variant: str | None,
        strict_fp32: bool = False,
        baselines: object = None,
    ) -> None:
        self._device = Device.CPU if device == "auto" else Device(device)
        self._settings = Settings(
            device=self._device, sandbox=sandbox, quick=quick, variant=variant, strict_fp32=strict_fp32
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def settings_for(self, submission: Submission) -> Settings:
        return self._settings

    def environment_for(self, submission: Submission) -> Environment:
        return samples.environment(self._device)

    def grade(self, problem: Problem, submission: Submission) -> Verdict:
        time.sleep(self.seconds_each)
        self.graded.append(submission.name)
        first_line = submission.source.partition("\n")[0]
        asked = first_line.removeprefix("# status: ") if first_line.startswith("# status: ") else Status.CORRECT
        return samples.verdict(
            submission,
            Status.INVALID_SUBMISSION if submission.unreadable else Status(asked),
            problem_source=problem.source,
            where=self.environment_for(submission),
            settings=self._settings,
        )

    def grade_many(self, work: Iterable[Work]) -> Iterator[Verdict]:
        """Reads one item ahead, as the real one does, so that waiting for work that is not there yet would show."""
        pending = iter(work)
        ahead: deque[Work] = deque()
        while True:
            ahead.extend(islice(pending, 2 - len(ahead)))
            if not ahead:
                return
            problem, submission = ahead.popleft()
            yield self.grade(problem, submission)
