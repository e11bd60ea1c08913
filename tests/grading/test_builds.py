"""Which build is waited for, and which only might be."""

from types import SimpleNamespace

import pytest

from grader.catalog.requests import make_request
from grader.grading.builds import LATER_NICENESS, Builds
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
    return make_request(samples.problem("x"), made, device="cuda", default_device=Device.CPU)


@pytest.fixture
def resources(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return Resources()


def test_the_first_of_a_batch_has_the_cores_before_those_that_follow(resources):
    builds = Builds(resources)
    with builds.ahead():
        for author in "abc":
            builds.start(request(author))
        builds.start(request("a"))
        for author in "abc":
            builds.get(request(author))
    assert sorted(resources.asked) == [("a", 0), ("b", LATER_NICENESS), ("c", LATER_NICENESS)]
