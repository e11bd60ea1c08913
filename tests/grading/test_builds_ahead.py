"""Which build is waited for, and which only might be."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from grader.catalog.requests import make_request
from grader.errors import Cancelled
from grader.grading.builds_ahead import LATER_NICENESS, BuildsAhead
from grader.grading.pipeline import Pipeline
from grader.options import GraderOptions
from grader.verdict.models import Device, Submission
from tests import samples


class Resources:
    """Builds at once, and says how nicely."""

    def __init__(self):
        self.cache, self.asked = {}, []

    def build_apart(self, submission, device, *, niceness=0):
        assert device is Device.CUDA
        self.asked.append((submission.author, niceness))
        return SimpleNamespace(result=None)


def request(author):
    made = Submission(author=author, problem_id="x", path="x.py", source=f"# {author}")
    return make_request(samples.problem("x"), made, GraderOptions(device="cuda"), default_device=Device.CPU)


@pytest.fixture
def resources(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return Resources()


def test_the_first_of_a_batch_has_the_cores_before_those_that_follow(resources):
    builds = BuildsAhead(resources)
    with builds.ahead() as start:
        for author in "abc":
            start(request(author))
        start(request("a"))
        for author in "abc":
            builds.get(request(author))
    assert sorted(resources.asked) == [("a", 0), ("b", LATER_NICENESS), ("c", LATER_NICENESS)]


@pytest.fixture
def pipeline():
    """One that was started before the GPU is made up."""
    with Pipeline(GraderOptions(device="cpu")) as made:
        yield made


def test_two_batches_of_one_grader_build_each_source_once(pipeline, resources, monkeypatch):
    """One ends while the other still starts builds."""
    pipeline.builds = BuildsAhead(resources)

    def grade(grading_request, upcoming):
        pipeline.builds.get(grading_request)
        return grading_request.submission.author

    monkeypatch.setattr(pipeline, "grade", grade)
    monkeypatch.setattr(pipeline, "_look_ahead", lambda _: None)
    authors = [str(number) for number in range(pipeline.builds.at_a_time + 4)]
    one, other = (pipeline.grade_many(map(request, batch)) for batch in (authors, "ab"))
    first = next(one)
    assert list(other) == ["a", "b"]
    assert [first, *one] == authors
    assert sorted(author for author, _ in resources.asked) == sorted([*authors, "a", "b"])


def test_a_batch_that_ends_waits_for_its_own_builds_only(resources, monkeypatch):
    """Its other builds are given up, though the pool has not come to them."""
    released = threading.Event()
    monkeypatch.setattr(resources, "build_apart", lambda *_, **__: released.wait())
    builds, one, other = BuildsAhead(resources), request("a"), request("b")
    with builds.ahead() as start:
        for author in range(builds.at_a_time):
            start(request(str(author)))
        start(one)
        with builds.ahead() as start_other:
            start_other(other)
        under_way = [builds.under_way(grading_request.submission) for grading_request in (one, other)]
        released.set()
    assert under_way == [True, False]
    assert not builds.under_way(one.submission)


def test_who_interrupts_a_batch_does_not_wait_for_compilers(resources, monkeypatch):
    """Their processes are about to be ended."""
    begun, free, ended = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr(resources, "build_apart", lambda *_, **__: (begun.set(), free.wait(5), ended.set()))

    def interrupted():
        with BuildsAhead(resources).ahead() as start:
            start(request("a"))
            assert begun.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not ended.is_set()
    free.set()


def test_a_stopped_request_does_not_wait_for_its_build_and_another_batch_takes_builds_over(
    pipeline, resources, monkeypatch
):
    begun, free, ended = threading.Semaphore(0), threading.Event(), threading.Event()
    build_apart = resources.build_apart

    def slowly(submission, device, **options):
        built = build_apart(submission, device, **options)
        begun.release()
        free.wait(30)
        ended.set()
        return built

    monkeypatch.setattr(resources, "build_apart", slowly)
    pipeline.builds = BuildsAhead(resources)
    monkeypatch.setattr(pipeline.builds, "_pool", ThreadPoolExecutor(2))
    monkeypatch.setattr(pipeline, "_graded", lambda one, upcoming: pipeline.builds.get(one))
    monkeypatch.setattr(pipeline, "_look_ahead", lambda _: None)
    unwanted, other = request("a"), request("b")

    def stop():
        for _ in range(2):
            begun.acquire(timeout=30)
        pipeline.stop(unwanted)

    threading.Thread(target=stop).start()
    with pytest.raises(Cancelled):
        next(pipeline.grade_many([unwanted, other]))
    assert not ended.is_set()
    threading.Timer(0.5, free.set).start()
    assert list(pipeline.grade_many([other])) == [None]
    assert sorted(author for author, _ in resources.asked) == ["a", "b"]
