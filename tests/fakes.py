"""A grader without workers, at the seam that the command line calls."""

import time
from collections import deque
from itertools import islice

from grader.catalog.requests import make_request
from grader.verdict.models import Device, Status
from tests import samples


class FakeGrader:
    """Reads the status that it is to give from the source's first line (`# status: wrong_output`)."""

    seconds_each = 0.0
    graded: list[str] = []
    """Names, in order, over all instances; tests clear it."""

    def __init__(self, options):
        self._options = options

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def request(self, work):
        return make_request(*work, device=self._options.device, default_device=Device.CPU)

    def settings_for(self, request):
        return self._options.settings(request.device)

    def environment_for(self, request):
        return samples.environment(request.device)

    def grade(self, request):
        submission = request.submission
        time.sleep(self.seconds_each)
        self.graded.append(submission.name)
        first_line = submission.source.partition("\n")[0]
        asked = first_line.removeprefix("# status: ") if first_line.startswith("# status: ") else Status.CORRECT
        return samples.verdict(
            submission,
            Status.INVALID_SUBMISSION if submission.unreadable else Status(asked),
            problem_source=request.problem.source,
            where=self.environment_for(request),
            settings=self.settings_for(request),
        )

    def grade_many(self, work):
        """Reads one item ahead, as the real one does, so that waiting for work that is not there yet would show."""
        pending, ahead = iter(work), deque()
        while True:
            ahead.extend(islice(pending, 2 - len(ahead)))
            if not ahead:
                return
            yield self.grade(ahead.popleft())
