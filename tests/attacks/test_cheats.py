"""Ways to fool a grader, and honest work that graders wrongly reject: each is graded, and its verdict compared."""

import pytest

from grader.models import TimeLimits
from tests import expected as cases

FOLDERS = ("cheat_*", "honest_*")
LIMITS = TimeLimits(build=120, construction=30, call=20)


@pytest.fixture(scope="module")
def graders():
    with cases.graders(rounds=2, limits=LIMITS) as get:
        yield get


@pytest.mark.parametrize(("path", "expected"), cases.listed(*FOLDERS))
def test_case(graders, path, expected):
    cases.compare(cases.grade(graders, path, expected), expected)


def test_every_file_has_an_expected_verdict():
    assert {entry.values[0] for entry in cases.listed(*FOLDERS)} == cases.there(*FOLDERS)


def test_every_attack_says_what_it_is():
    for path in cases.there("cheat_*"):
        head = path.read_text().split('"""')[1]
        assert path.stem.startswith("honest") or ("Attack surface: " in head and "Why it fails: " in head), path
