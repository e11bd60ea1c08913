"""Batches of a server: lines wait, end once, in an order that a reader can go on from, and survive a restart."""

import pytest

from db import Claims, Store, cancels
from db.batches import Batches, NewLine
from grader.errors import UserError
from tests import samples

LINES = [NewLine("ann", '{"n": 1}'), NewLine("bob", '{"n": 2}'), NewLine("ann", "", "missing field 'source'")]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "grader.db") as opened:
        yield opened


def test_lines_wait_until_they_end_each_once(store):
    batches = Batches(store)
    batch, waiting = batches.add("ann", None, "d", 3, LINES)
    assert [(line.author, line.owner, line.priority) for line in waiting] == [("ann", "ann", 3), ("bob", "ann", 3)]
    assert batches.text(waiting[1].id) == '{"n": 2}'
    with store.run([]) as run:
        submission = samples.submission()
        saved = store.save(samples.verdict(submission), submission, samples.problem(), run)
    assert batches.end([waiting[1].id], verdict_id=saved.verdict_id) == 1
    assert batches.end([waiting[1].id], message="too late") == 0
    assert batches.text(waiting[1].id) is None
    state = batches.find(batch)
    assert (state.lines, state.ended, state.without_verdict, state.done) == (3, 2, 1, False)
    assert state.statuses == {"correct": 1}
    found = batches.ended(batch, 0, 10)
    assert [(line.ended, line.number, line.verdict_id) for line in found] == [(1, 3, None), (2, 2, 1)]
    assert found[0].message == "missing field 'source'"
    assert batches.ended(batch, 1, 10) == found[1:]
    assert batches.ended_of([line.id for line in waiting]) == {waiting[1].id}


def test_a_key_names_one_batch_of_its_owner(store):
    batches = Batches(store)
    first, _ = batches.add("ann", "k", "d", 0, LINES)
    assert batches.add("ann", "k", "other", 0, LINES) == (first, None)
    assert batches.of_key("ann", "k") == (first, "d")
    assert batches.add("bob", "k", "d", 0, LINES)[0] != first


def test_what_waited_is_found_by_another_process(store, tmp_path):
    Batches(store).add("ann", None, "d", 0, LINES)
    with Store.open(tmp_path / "grader.db") as other:
        assert [line.author for line in Batches(other).waiting()] == ["ann", "bob"]


def test_an_author_a_batch_and_a_run_are_cancelled(store):
    batches, heard = Batches(store), []
    batch, _ = batches.add("ann", None, "d", 0, LINES)
    with store.run([]) as run:
        with Claims(store, run, print, cancelled=heard.append) as claims:
            assert cancels.cancel_author(store, "ann") == (1, 1)
            cancels.cancel_run(store, run.id)
            claims._presence._look()  # as its thread does every second
            claims._presence._look()
            assert heard == ["ann", None]
        with pytest.raises(UserError, match="run 1 is not grading now; none is"):
            cancels.cancel_run(store, run.id)
    assert cancels.cancel_batch(store, batch) == 1
    assert {line.message for line in batches.ended(batch, 1, 10)} == {"cancelled"}
    with pytest.raises(UserError, match="there is no batch x"):
        cancels.cancel_batch(store, "x")


def test_old_batches_are_forgotten_once_they_have_ended(store):
    batches = Batches(store)
    ended, _ = batches.add("ann", None, "d", 0, LINES[2:])
    still, _ = batches.add("ann", None, "d", 0, LINES)
    batches.forget_older(days=-1)
    assert batches.find(ended) is None
    assert batches.find(still).lines == 3


@pytest.mark.parametrize("way", ["verdict", "cancelled"])
def test_a_batch_is_kept_for_a_month_after_its_last_line_ended(store, way):
    batches = Batches(store)
    batch, waiting = batches.add("ann", None, "d", 0, LINES)
    with store.writing() as session:
        session.connection().exec_driver_sql("update batches set created_at = '2026-01-01'")
    batches.end([waiting[0].id], verdict_id=1)
    if way == "verdict":
        batches.end([waiting[1].id], verdict_id=1)
    else:
        cancels.cancel_batch(store, batch)
    batches.forget_older(days=30)
    assert batches.find(batch).done
    batches.forget_older(days=-1)
    assert batches.find(batch) is None


def test_a_lower_priority_waits_for_a_higher_one(store):
    with store.run([]) as one, store.run([]) as other:
        with Claims(store, one, print, priority=1), Claims(store, other, print) as lower:
            assert lower._presence._behind.is_set()
            with store.run([]) as third, Claims(store, third, print, priority=1) as equal:
                assert not equal._presence._behind.is_set()
        with Claims(store, other, print) as alone:
            alone.wait_turn()
