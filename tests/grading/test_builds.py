"""Which build is waited for, and which only might be."""

from types import SimpleNamespace

import pytest

from grader.grading.builds import LATER_NICENESS, Builds
from grader.verdict.models import Submission


class Resources:
    """Builds at once, and says how nicely."""

    def __init__(self):
        self.cache, self.asked = {}, []

    def build_apart(self, submission, *, niceness=0):
        self.asked.append((submission.author, niceness))
        return SimpleNamespace(result=None)


def submission(author):
    return Submission(author=author, problem_id="x", path="x.py", source=f"# {author}")


@pytest.fixture
def resources(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return Resources()


def test_the_first_of_a_batch_has_the_cores_before_those_that_follow(resources):
    builds = Builds(resources)
    with builds.ahead():
        for author in "abc":
            builds.start(submission(author))
        builds.start(submission("a"))
        for author in "abc":
            builds.get(submission(author))
    assert sorted(resources.asked) == [("a", 0), ("b", LATER_NICENESS), ("c", LATER_NICENESS)]
