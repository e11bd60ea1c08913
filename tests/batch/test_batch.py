"""A batch against a database: what is known costs little, what is the same is graded once, and nothing grows."""

import itertools
import threading
import tracemalloc
from collections import Counter

import pytest

from db import Claims, Keeper, Store, presence
from grader.batch import Batch
from grader.batch import batch as module
from grader.errors import Cancelled, NotGraded
from grader.options import GraderOptions
from grader.verdict.models import Status
from tests import samples
from tests.fakes import FakeGrader


class Listener:
    def __init__(self):
        self.shown, self.dropped = Counter(), []

    def show(self, verdict, tag):
        self.shown[verdict.submission, tag] += 1

    def drop(self, reason, tag):
        self.dropped.append((type(reason), tag))

    def warn(self, message):
        raise AssertionError(message)


class Stopping(FakeGrader):
    """Ends what is stopped, and calls `meanwhile` while it grades the source that begins with its name."""

    def __init__(self, options, meanwhile=lambda: None, error=None):
        super().__init__(options)
        self.stopped, self.meanwhile, self.error = [], meanwhile, error

    def stop(self, request):
        self.stopped.append(request)

    def results(self, work):
        for request in work:
            self.meanwhile()
            if request in self.stopped or self.error:
                yield request, self.error or Cancelled("cancelled")
                self.stopped.clear()
            else:
                yield request, self.grade(request)


@pytest.fixture
def made(tmp_path):
    """`made(grader)` is a batch with its listener."""
    with Store.open(tmp_path / "g.db") as store, store.run([]) as run, Claims(store, run, print) as claims:

        def make(grader=None):
            listener = Listener()
            keeper = Keeper(store, run, print)
            grader = grader or FakeGrader(GraderOptions(device="cpu"))
            return Batch(grader, store, keeper, claims, listener), listener, store

        yield make


def item(author, number=0, tag=None):
    source = f"# status: correct\n# {number}\n{samples.SUBMISSION_SOURCE}"
    return (samples.problem(), samples.submission(author=author, source=source)), tag


def test_known_lines_are_shown_in_flat_memory(made):
    batch, listener, _ = made()
    batch.grade([item("ann")])
    peaks = []

    def many():
        for number in range(1, 6001):
            yield item("ann", tag=number % 7)
            if number % 2000 == 0:
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.reset_peak()

    tracemalloc.start()
    try:
        batch.grade(many())
    finally:
        tracemalloc.stop()
    assert (batch.reused, listener.shown.total()) == (6000, 6001)
    assert peaks[-1] < peaks[0] + 50_000


def test_one_source_many_times_is_graded_once_and_a_bounded_number_waits_for_it(made, monkeypatch):
    monkeypatch.setattr(module, "MOST_COPIES", 10)
    most, waiting = [0], [0]
    batch, listener, store = made()

    def many():
        for number in range(300):
            waiting[0] = number + 1 - listener.shown.total()
            most[0] = max(most[0], waiting[0])
            yield item(f"author{number}", tag=number)

    FakeGrader.graded = []
    batch.grade(many())
    assert len(FakeGrader.graded) == 1
    assert listener.shown.total() == store.extent()[0] == 300
    assert most[0] <= 13


def test_the_same_submission_twice_has_one_verdict(made):
    batch, listener, store = made()
    batch.grade([item("ann", tag=1), item("ann", tag=2), item("bob", tag=3)])
    assert listener.shown == Counter({("ann/scale", 1): 1, ("ann/scale", 2): 1, ("bob/scale", 3): 1})
    assert store.extent()[0] == 2


@pytest.mark.parametrize("author", ["ann", "bob"])
def test_after_a_grader_error_the_next_line_with_this_source_is_graded(made, author):
    class Failing(FakeGrader):
        def grade(self, request):
            verdict = super().grade(request)
            if len(self.graded) > 1:
                return verdict
            return samples.verdict(request.submission, Status.GRADER_ERROR, problem_source=request.problem.source)

    batch, listener, _ = made(Failing(GraderOptions(device="cpu")))
    FakeGrader.graded = []
    for number, name in enumerate(["ann", author, "cid"]):
        batch.grade([item(name, tag=number)])
    assert listener.shown.total() == 3
    assert batch.statuses == {Status.GRADER_ERROR: 1, Status.CORRECT: 2}
    assert len(FakeGrader.graded) == 2


def test_who_waits_for_a_cancelled_source_still_gets_its_verdict(made):
    once = itertools.count()

    def meanwhile():
        if next(once) == 0:
            batch.cancel(lambda submission, _: submission.author == "ann")
            batch._to_grade(batch._ticket(batch._grader.request(item("bob")[0]), 2))

    batch, listener, store = made(Stopping(GraderOptions(device="cpu"), meanwhile))
    batch.grade([item("ann", tag=1)])
    batch._grade(batch._left_by_others())
    assert listener.dropped == [(Cancelled, 1)]
    assert listener.shown == Counter({("bob/scale", 2): 1})
    with store.reading() as session:
        assert session.connection().exec_driver_sql("select count(*) from claims").scalar() == 0


def test_a_grading_over_its_limit_drops_all_who_wait_for_it(made):
    batch, listener, store = made(Stopping(GraderOptions(device="cpu"), error=NotGraded("stopped after 2 s")))
    batch.grade([item("ann", tag=1)])
    assert (listener.dropped, store.extent()[0]) == ([(NotGraded, 1)], 0)


def test_a_cancelled_author_s_further_lines_are_left_out(made):
    batch, listener, _ = made()
    batch.cancel_author("ann")
    threading.Thread(target=batch.cancel_author, args=["cid"]).start()
    batch.grade([item("ann", 1, "a"), item("bob", 2, "b"), None, item("ann", 3, "c")])
    assert listener.dropped == [(Cancelled, "a"), (Cancelled, "c")]
    assert listener.shown == Counter({("bob/scale", "b"): 1})


def test_a_cancelled_author_s_lines_that_another_grader_left_are_not_graded(made):
    """Cancelled while the first of them is being graded, when the others are in no list."""
    once = itertools.count()

    def meanwhile():
        if next(once) == 0:
            batch.cancel_author("ann")

    batch, listener, _ = made(Stopping(GraderOptions(device="cpu"), meanwhile))
    lines = [item(author, number, number) for number, author in enumerate(["bob", "ann"])]
    batch._claimed += [batch._ticket(batch._grader.request(pair), tag) for pair, tag in lines]
    batch._grade(batch._left_by_others())
    assert listener.dropped == [(Cancelled, 1)]
    assert listener.shown == Counter({("bob/scale", 0): 1})


def test_an_author_who_is_cancelled_while_their_line_is_read_gets_no_verdict(made):
    class Reading(FakeGrader):
        def request(self, work):
            batch.cancel_author(work[1].author)
            return super().request(work)

    batch, listener, _ = made(Reading(GraderOptions(device="cpu")))
    batch.grade([item("ann", tag=1)])
    assert (listener.dropped, listener.shown) == ([(Cancelled, 1)], Counter())


def test_a_source_that_another_grader_took_over_has_one_verdict(made, monkeypatch):
    monkeypatch.setattr(presence, "BEAT_SECONDS", 3600.0)

    def lapse():
        with store.writing() as session:
            session.connection().exec_driver_sql("update graders set machine = 'another', seen_at = ''")
        with store.run([]) as run, Claims(store, run, print) as claims:
            keeper, grader = Keeper(store, run, print), FakeGrader(GraderOptions(device="cpu"))
            Batch(grader, store, keeper, claims, Listener()).grade([item("ann")])

    batch, listener, store = made(Stopping(GraderOptions(device="cpu"), lapse))
    batch.grade([item("ann", tag=1)])
    batch._grade(batch._left_by_others())
    assert listener.shown == Counter({("ann/scale", 1): 1})
    assert (batch.reused, store.extent()[0]) == (1, 1)


class Moving(FakeGrader):
    """Each answer comes from another machine than the one before."""

    def __init__(self, options):
        super().__init__(options)
        self.answered = 0

    def environments_for(self, work):
        usual = self.environment_for(work)
        return (usual.model_copy(update={"device_name": f"machine {self.answered}"}),)

    def results(self, work):
        for request in work:
            self.answered += 1
            yield request, self.grade(request)


def test_a_place_that_moves_to_another_machine_meanwhile_changes_no_claim(made):
    batch, listener, _ = made(Moving(GraderOptions(device="cpu")))
    batch.grade([item("ann", 1), item("bob", 2)])
    assert batch.statuses.total() == 2
    assert listener.dropped == []
