"""What changed between two databases or runs."""

import pytest

from db import Store
from db.changes import compare
from db.rows import read_rows
from db.runs import run_ids
from grader.verdict.models import Device, Settings, Status
from grader.verdict.precision import Precision
from tests import samples


@pytest.fixture
def sides(tmp_path):
    """Two databases; `save(side, author, ...)` stores a verdict in one of them, each in a run of its own."""
    with Store.open(tmp_path / "a.db") as before, Store.open(tmp_path / "b.db") as after:

        class Sides:
            stores = before, after

            def save(self, side, author="ann", problem_id="scale", label=None, text="a", sample=None, **verdict):
                submission = samples.submission(author, problem_id, label, source=text, sample=sample)
                with self.stores[side].run([]) as run:
                    self.stores[side].save(
                        samples.verdict(submission, **verdict), submission, samples.problem(problem_id), run
                    )

            def both(self, *arguments, **verdict):
                self.save(0, *arguments, **verdict)
                self.save(1, *arguments, **verdict)

            def compare(self):
                return compare(*map(read_rows, self.stores))

            def changes(self):
                found = [(one.kind, one.submission, one.before, one.after) for one in self.compare().changes]
                return [one for one in found if one[0] != "moved"]

        yield Sides()


def test_nothing_changed(sides):
    sides.both("ann", total=2.0)
    sides.both("bob", status=Status.WRONG_OUTPUT)
    found = sides.compare()
    assert (found.changes, found.same) == ((), 2)


@pytest.mark.parametrize(
    ("before", "after", "kind", "shown"),
    [
        ({"status": Status.WRONG_OUTPUT}, {}, "fixed", ("wrong_output", "correct 2.000x")),
        ({}, {"status": Status.MISSING_BACKWARD}, "broken", ("correct 2.000x", "missing_backward")),
        (
            {"status": Status.BUILD_ERROR},
            {"status": Status.WRONG_BACKWARD},
            "changed",
            ("build_error", "wrong_backward"),
        ),
        ({"total": 2.0}, {"total": 3.0}, "faster", ("correct 2.000x", "correct 3.000x")),
        ({"total": 2.0}, {"total": 1.0}, "slower", ("correct 2.000x", "correct 1.000x")),
        ({}, {"timing": None}, None, None),
        ({"total": 2.0}, {"total": 2.1}, None, None),
        ({"total": 2.1}, {"total": 2.0}, None, None),
    ],
)
def test_kinds_of_change(sides, before, after, kind, shown):
    sides.save(0, **before)
    sides.save(1, **after)
    assert sides.changes() == ([(kind, "ann", *shown)] if kind else [])


def test_what_is_in_one_side_only(sides):
    sides.both("ann")
    sides.save(0, "bob", label="v1")
    sides.save(1, "eve", sample=3, status=Status.CRASHED)
    assert sides.changes() == [
        ("removed", "bob__v1", "correct 2.000x", ""),
        ("added", "eve sample 3", "", "crashed"),
    ]


def test_a_device_is_a_submission_of_its_own(sides):
    sides.save(0, total=2.0)
    sides.save(1, total=2.0, where=samples.environment(Device.CUDA, "NVIDIA H200"))
    assert [change[0] for change in sides.changes()] == ["removed", "added"]


def test_the_newest_verdict_that_counts_is_compared(sides):
    sides.save(0, total=2.0)
    sides.save(1, total=9.0)
    sides.save(1, total=2.0)
    sides.save(1, status=Status.GRADER_ERROR)
    sides.save(1, settings=Settings(device=Device.CPU, variant="small"), total=9.0)
    assert sides.changes() == []


def test_a_grading_without_tensorfloat_32_is_a_submission_of_its_own(sides):
    strict = Settings(device=Device.CPU, strict_fp32=True)
    sides.both(total=2.0)
    sides.both("bob", total=1.5)
    sides.save(1, total=1.0, settings=strict)
    assert [(one.kind, one.submission, one.after) for one in sides.compare().changes] == [
        ("added", "ann", "correct 1.000x")
    ]


def test_another_source_is_named(sides):
    sides.save(0, text="old", status=Status.WRONG_OUTPUT)
    sides.save(1, text="new")
    (change,) = (one for one in sides.compare().changes if one.kind == "fixed")
    assert change.source_changed


def test_authors_that_moved(sides):
    """Over all problems of their side, without copies of the reference, and not for a change that no rank shows."""
    for problem_id in ("scale", "add"):
        sides.both("ann", problem_id, total=2.0)
        sides.both("eve", problem_id, total=50.0, labels=("wraps_reference",))
    sides.both("ann", "hard", status=Status.WRONG_OUTPUT)
    sides.both("bob", "scale", total=1.5)
    sides.save(1, "bob", "add", total=8.0)
    moved = [one for one in sides.compare().changes if one.kind == "moved"]
    assert [(one.submission, one.problem, one.before, one.after) for one in moved] == [
        ("ann", "", "1 1.587x", "2 1.587x"),
        ("bob", "", "2 1.145x", "1 2.289x"),
    ]


def test_two_runs_of_one_database(sides):
    sides.save(0, total=2.0)
    sides.save(0, total=4.0)
    first, second = run_ids(sides.stores[0])
    found = compare(read_rows(sides.stores[0], run=first), read_rows(sides.stores[0], run=second))
    assert [one.kind for one in found.changes] == ["faster"]


def test_a_verdict_in_another_precision_moves_no_author(sides):
    """The board without options has one precision."""
    sides.both("ann", total=2.0)
    sides.both("bob", total=3.0)
    sides.save(1, "ann", total=9.0, settings=Settings(device=Device.CPU, precision=Precision.BF16))
    assert [one for one in sides.compare().changes if one.kind == "moved"] == []
