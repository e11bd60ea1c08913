"""Which build is waited for, and which only might be."""

from types import SimpleNamespace

import pytest

from grader.builds import LATER_NICENESS, Builds
from grader.models import Submission


class Workshop:
    """Builds at once, and says how nicely."""

    def __init__(self):
        self.cache, self.asked = {}, []

    def build_apart(self, submission, *, niceness=0):
        self.asked.append((submission.author, niceness))
        return SimpleNamespace(result=None)


def submission(author):
    return Submission(author=author, problem_id="x", path="x.py", source=f"# {author}")


@pytest.fixture
def workshop(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return Workshop()


def test_the_first_of_a_batch_has_the_cores_before_those_that_follow(workshop):
    builds = Builds(workshop)
    with builds.ahead():
        for author in "abc":
            builds.start(submission(author))
        builds.start(submission("a"))
        for author in "abc":
            builds.get(submission(author))
    assert sorted(workshop.asked) == [("a", 0), ("b", LATER_NICENESS), ("c", LATER_NICENESS)]
