"""A grader without workers, in place of the one that the command line uses."""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Self

from grader.catalog.requests import Request, make_request
from grader.options import GraderOptions
from grader.verdict.models import Device, Environment, Problem, Settings, Status, Submission, Verdict
from tests import samples

Work = tuple[Problem, Submission]


class FakeGrader:
    """Returns the status that the first line of the source names (`# status: wrong_output`).

    The verdict has the labels of lines such as `# label: cuda_graph`.
    """

    waits_apart = False
    seconds_each = 0.0
    graded: list[str] = []
    """Names of the graded submissions of all instances, in order; tests clear it."""

    def __init__(self, options: GraderOptions) -> None:
        self._options = options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def request(self, work: Work) -> Request:
        return make_request(*work, self._options, default_device=Device.CPU)

    def settings_for(self, request: Request) -> Settings:
        return self._options.settings(request.device, request.precision)

    def environment_for(self, request: Request) -> Environment:
        return samples.environment(request.device)

    def environments_for(self, request: Request) -> tuple[Environment, ...]:
        return (self.environment_for(request),)

    def results(self, work: Iterable[Request]) -> Iterator[tuple[Request, Verdict]]:
        taken: deque[Request] = deque()

        def requests() -> Iterator[Request]:
            for request in work:
                taken.append(request)
                yield request

        for verdict in self.grade_many(requests()):
            yield taken.popleft(), verdict

    def grade(self, request: Request) -> Verdict:
        submission = request.submission
        time.sleep(self.seconds_each)
        self.graded.append(submission.name)
        first_line = submission.source.partition("\n")[0]
        status = first_line.removeprefix("# status: ") if first_line.startswith("# status: ") else Status.CORRECT
        return samples.verdict(
            submission,
            Status.INVALID_SUBMISSION if submission.unreadable else Status(status),
            problem_source=request.problem.source,
            where=self.environment_for(request),
            settings=self.settings_for(request),
            labels=tuple(re.findall(r"^# label: (\w+)$", submission.source, re.MULTILINE)),
        )

    def grade_many(self, work: Iterable[Request]) -> Iterator[Verdict]:
        """Read one item ahead, as the real one does, so that a wait for an item that does not exist yet shows."""
        pending = iter(work)
        ahead: deque[Request] = deque()
        while True:
            ahead.extend(islice(pending, 2 - len(ahead)))
            if not ahead:
                return
            yield self.grade(ahead.popleft())
