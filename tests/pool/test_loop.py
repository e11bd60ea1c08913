"""A place answers in the order of its work, also when one fails while others are taken ahead."""

import threading
from itertools import islice

from grader.catalog.requests import Request
from grader.pool.loop import GradingLoop
from grader.pool.messages import GradeOrder
from grader.verdict.models import Device
from tests import samples


class ReadsAhead:
    """Takes all work that there is before it grades; the first fails."""

    def grade_many(self, work):
        for request in list(work):
            if request.submission.author == "fails":
                raise RuntimeError("no verdict")
            yield samples.verdict(subject=request.submission)

    def profile(self, request):
        return samples.profile(request.submission)


def test_answers_keep_the_order_of_the_work_behind_a_failure():
    answers = []
    loop = GradingLoop(ReadsAhead(), answers.append)
    for number, (author, profiled) in enumerate([("fails", False), ("ann", False), ("bob", True), ("cat", False)], 1):
        request = Request(samples.problem(), samples.submission(author=author), Device.CPU, (), profiled=profiled)
        loop.put(GradeOrder(number=number, request=request))
    loop.put(None)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    thread.join(10)
    assert [answer.number for answer in answers] == [1, 2, 3, 4]
    assert [answer.profile is not None for answer in answers] == [False, False, True, False]


class Polls:
    """Looks for more work before each verdict, as the pipeline does; counts its batches."""

    def __init__(self, arrives):
        self.arrives, self.batches = arrives, 0

    def grade_many(self, work):
        self.batches += 1
        pending, ahead = iter(work), []
        while True:
            ahead += islice(pending, 2)
            if not ahead:
                return
            self.arrives()
            yield samples.verdict(subject=ahead.pop(0).submission)


def test_what_arrives_meanwhile_is_prepared_and_graded_in_the_same_batch():
    answers, later = [], [None, 4, 3, 2]

    def put(number):
        request = Request(samples.problem(), samples.submission(), Device.CPU, ())
        loop.put(None if number is None else GradeOrder(number=number, request=request))

    engine = Polls(lambda: put(later.pop()) if later else None)
    loop = GradingLoop(engine, answers.append)
    put(1)
    loop.run()
    assert [answer.number for answer in answers] == [1, 2, 3, 4]
    assert engine.batches == 1
