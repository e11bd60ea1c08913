"""Verdicts go in, come out whole, and are found again only where they still hold."""

import sqlite3

import pytest

from db import Store
from grader.errors import StoreError
from grader.verdict.models import Device, Settings, Status
from tests import samples

NOON = "2026-01-01T12:00:00.000000+00:00"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "grader.db") as opened:
        yield opened


def save(store, verdict, submission, problem=None):
    with store.run(["grade", "submissions"]) as run:
        return store.save(verdict, submission, problem or samples.problem(), run)


def rows(tmp_path, query):
    connection = sqlite3.connect(tmp_path / "grader.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_a_verdict_comes_back_whole(store):
    submission = samples.submission(label="v2", sample=3)
    saved = save(store, samples.verdict(submission), submission)
    stored = store.get(saved.verdict_id)
    assert stored.verdict == saved == samples.verdict(submission).model_copy(update={"verdict_id": 1})
    assert stored.submission_source == submission.source
    assert stored.problem_source == samples.problem().source


def test_not_a_number_and_infinity_survive(store):
    submission = samples.submission()
    verdict = samples.verdict(submission)
    check = verdict.backward.gradients[0].model_copy(update={"max_abs_error": float("inf")})
    verdict = verdict.model_copy(update={"backward": verdict.backward.model_copy(update={"gradients": (check,)})})
    saved = save(store, verdict, submission)
    assert store.get(saved.verdict_id).verdict.backward.gradients[0].max_abs_error == float("inf")


def test_texts_are_kept_once(store, tmp_path):
    for author in ("ann", "bob", "ann"):
        submission = samples.submission(author=author)
        save(store, samples.verdict(submission), submission)
    assert rows(tmp_path, "select count(*) from sources") == [(1,)]
    assert rows(tmp_path, "select author from submissions order by id") == [("ann",), ("bob",)]
    assert rows(tmp_path, "select count(*) from problems, environments") == [(1,)]
    assert rows(tmp_path, "select count(*) from verdicts") == [(3,)]
    known, unknown = samples.submission().source_hash, "0" * 64
    assert store.sources([known, unknown]) == {known: samples.submission().source}
    known = samples.submission()
    assert store.sources([known.source_hash, "0" * 64]) == {known.source_hash: known.source}


def test_columns_repeat_the_document(store, tmp_path):
    submission = samples.submission(label="v2")
    save(store, samples.verdict(submission, Status.MISSING_BACKWARD, forward_speedup=4.0), submission)
    assert rows(
        tmp_path,
        "select author, label, problem, device, status, forward_status, backward_status, total_ci_low, forward_speedup,"
        " forward_ci_low, created_at from verdicts",
    ) == [("ann", "v2", "scale", "cpu", "missing_backward", "passed", "failed", None, 4.0, 3.6, NOON)]


def find(store, submission=None, problem=None, where=None, settings=None):
    return store.find(
        submission or samples.submission(),
        problem or samples.problem(),
        [where or samples.environment()],
        settings or Settings(device=Device.CPU),
    )


def test_the_newest_verdict_that_holds_is_found(store):
    submission = samples.submission()
    save(store, samples.verdict(submission, total=1.5), submission)
    newest = save(store, samples.verdict(submission, total=2.5), submission)
    assert find(store) == newest


@pytest.mark.parametrize(
    "changed",
    [
        {"submission": samples.submission(source="class ModelNew: ...")},
        {"submission": samples.submission(author="bob")},
        {"submission": samples.submission(label="v2")},
        {"submission": samples.submission(sample=0)},
        {"problem": samples.problem(source=samples.PROBLEM_SOURCE + "\n")},
        {"where": samples.environment(device_name="another CPU")},
        {"settings": Settings(device=Device.CPU, quick=True)},
    ],
    ids=["source", "author", "label", "sample", "problem", "environment", "settings"],
)
def test_a_verdict_on_something_else_is_not_found(store, changed):
    submission = samples.submission()
    save(store, samples.verdict(submission), submission)
    assert find(store, **changed) is None


def test_our_own_failure_is_not_found(store):
    submission = samples.submission()
    save(store, samples.verdict(submission, Status.GRADER_ERROR), submission)
    assert find(store) is None


def test_an_unreadable_file_is_not_found(store):
    submission = samples.submission(source="", unreadable="The file is empty")
    save(store, samples.verdict(submission, Status.INVALID_SUBMISSION), submission)
    assert find(store, submission=submission) is None


def test_runs_say_how_they_ended(store, tmp_path):
    with store.run(["grade", "a b"]):
        assert rows(tmp_path, "select finished_at, outcome from runs") == [(None, None)]
    with pytest.raises(KeyboardInterrupt), store.run([]):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="ours"), store.run([]):
        raise ValueError("ours")
    assert rows(tmp_path, "select arguments from runs limit 1") == [('["grade", "a b"]',)]
    assert rows(tmp_path, "select outcome from runs where finished_at is not null order by id") == [
        ("finished",),
        ("interrupted",),
        ("failed",),
    ]


def test_foreign_keys_are_enforced(store):
    submission = samples.submission()
    with store.run([]) as run:
        unknown = type(run)(id=run.id + 1)
        with pytest.raises(Exception, match="FOREIGN KEY"):
            store.save(samples.verdict(submission), submission, samples.problem(), unknown)
    assert find(store) is None


def test_an_unknown_id_names_the_newest(store):
    with pytest.raises(StoreError, match=r"no verdict 7; there is none yet$"):
        store.get(7)
    submission = samples.submission()
    save(store, samples.verdict(submission), submission)
    with pytest.raises(StoreError, match=r"grader.db: no verdict 7; the newest is 1$"):
        store.get(7)


def test_a_document_of_another_version_is_explained(store, tmp_path):
    submission = samples.submission()
    save(store, samples.verdict(submission), submission)
    connection = sqlite3.connect(tmp_path / "grader.db")
    with connection:
        connection.execute("update verdicts set document = '{}'")
    connection.close()
    with pytest.raises(StoreError, match="verdict 1 was written by another version of the grader"):
        store.get(1)


def test_a_verdict_is_reused_on_another_machine_of_its_kind(store):
    here, there = (samples.environment(host=name, device_id=f"GPU-{name}") for name in ("here", "there"))
    submission = samples.submission()
    save(store, samples.verdict(submission, where=here), submission)
    assert find(store, submission, where=there).environment.host == "here"
    assert find(store, submission, where=samples.environment(device_name="another")) is None


def test_what_the_live_page_asks_twice_a_second_reads_no_other_verdict(store):
    """Of a run's verdicts it reads an index alone."""
    asked = (
        "select run_id, status, count(*), max(created_at) from verdicts where run_id in (1, 2) group by run_id, status"
    )
    with store.reading() as session:
        plan = session.connection().exec_driver_sql(f"explain query plan {asked}").all()
    assert "USING COVERING INDEX ix_verdicts_run" in plan[0][-1]


def test_a_verdict_on_fewer_rows_serves_where_memory_was_too_short_for_all(store):
    """The same command, run again, does not grade it again; one on another variant does not serve."""
    submission, whole = samples.submission(), Settings(device=Device.CPU)
    for variant, serves in (("small", False), ("half", True)):
        verdict = samples.verdict(submission, settings=whole.model_copy(update={"variant": variant}))
        save(store, verdict, submission)
        found = store.find(submission, samples.problem(), (verdict.environment,), whole)
        assert (found is not None and found.settings.variant == variant) == serves
