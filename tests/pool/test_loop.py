"""A place answers in the order of its work, also when one fails while others are taken ahead."""

import threading

from grader.catalog.requests import Request
from grader.pool.loop import GradingLoop
from grader.pool.messages import Work
from grader.verdict.models import Device
from tests import samples


class ReadsAhead:
    """Takes all work that there is before it grades; the first fails."""

    def grade_many(self, work):
        for request in list(work):
            if request.submission.author == "fails":
                raise RuntimeError("no verdict")
            yield samples.verdict(of=request.submission)

    def profile(self, request):
        return samples.profile(request.submission)


def test_answers_keep_the_order_of_the_work_behind_a_failure():
    answers = []
    loop = GradingLoop(ReadsAhead(), answers.append)
    for number, (author, profiled) in enumerate([("fails", False), ("ann", False), ("bob", True), ("cat", False)], 1):
        request = Request(samples.problem(), samples.submission(author=author), Device.CPU, (), profiled=profiled)
        loop.put(Work(number=number, request=request))
    loop.put(None)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    thread.join(10)
    assert [answer.number for answer in answers] == [1, 2, 3, 4]
    assert [answer.profile is not None for answer in answers] == [False, False, True, False]
