"""The service that grades what a server has taken: order, and what is forgotten."""

import json
import time
from types import SimpleNamespace

import pytest

from db.batches import CANCELLED, Batches, NewLine
from grader.catalog.problems import find_problems
from grader.catalog.requests import RequestReader
from grader.errors import StoreBusy
from grader.options import GraderOptions
from grader.pool import GraderPool
from grader.serve import profiles, service
from grader.serve.intake import Intake
from grader.serve.tokens import ANYONE, Rate, Tokens
from tests import samples


@pytest.fixture
def serving(tmp_path):
    """Grades at no cost, one line after another."""
    (tmp_path / "scale.py").write_text(samples.PROBLEM_SOURCE)

    def open_pool():
        return GraderPool(device="cpu", workers=1, engine="tests.pool.engine:CheapGrader")

    with service.GradingService(
        str(tmp_path / "g.db"), RequestReader(find_problems([tmp_path])), open_pool, print
    ) as made:
        yield made


def line(number, command=""):
    source = f"# {command}\n# {number}\n{samples.SUBMISSION_SOURCE}"
    return NewLine("ann", json.dumps({"problem": "scale", "source": source, "author": "ann", "label": f"v{number}"}))


def take(serving, *lines, priority=0):
    batch_id, _ = serving.take("ann", None, "digest", priority, lines)
    return batch_id


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_is_kept_in_memory_of_a_batch_that_has_ended(serving):
    def is_forgotten():
        return serving.state(batch_id).done and serving.version(batch_id) == serving.version("unknown")

    batch_id = take(serving, line(1))
    wait_for(is_forgotten)
    assert serving.state(batch_id).statuses == {"correct": 1}
    batch_id = take(serving, line(2, "wait for: ever"), line(3, "wait for: ever"))
    serving.cancel(batch_id)
    wait_for(is_forgotten)
    batch_id = take(serving, line(4, "wait for: ever"), line(5, "wait for: ever"))
    Batches(serving.store).cancel_author("ann")  # as another process does
    wait_for(is_forgotten)
    assert [one.message for one in serving.batches.ended(batch_id, 0, 9)] == [CANCELLED, CANCELLED]
    assert serving.waiting == 0


def test_a_priority_goes_before_what_waits_in_the_pool_too(serving, tmp_path):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    low = take(
        serving,
        *(line(n, f"wait for: {path}") for n, path in enumerate((first, second, third))),
        *map(line, range(3, 7)),
    )
    wait_for(lambda: serving.waiting == 2)  # the pool has four; the next is read and has no room there
    high = take(serving, line(7), priority=1)
    first.touch()
    wait_for(lambda: serving.waiting == 2)  # the one of high priority is read
    second.touch()
    wait_for(lambda: serving.waiting == 1)  # and is in the pool
    third.touch()
    wait_for(lambda: serving.state(low).done and serving.state(high).done)
    order = sorted((one.verdict_id, one.number) for one in serving.batches.ended(low, 0, 9))
    (urgent,) = serving.batches.ended(high, 0, 9)
    assert [number for verdict_id, number in order if verdict_id < urgent.verdict_id] == [1, 2, 3, 4]


def test_a_server_that_runs_for_long_forgets_old_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(service, "FORGET_SECONDS", 0.01, raising=False)
    with service.GradingService(
        str(tmp_path / "grader.db"), RequestReader(find_problems([])), GraderPool, print
    ) as serving:
        batch_id, _ = serving.batches.add("ann", None, "d", 0, [NewLine("ann", "", "refused")])
        assert serving.state(batch_id).done
        with serving.store.writing() as session:
            session.connection().exec_driver_sql("update batches set created_at = '2026-01-01'")
        deadline = time.monotonic() + 30
        while serving.state(batch_id) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_database_that_cannot_be_written_is_no_fault_of_the_sender(tmp_path):
    """It is answered with 503, after which a client tries again; 422 is final."""

    def locked(*_):
        raise StoreBusy("another process keeps the database locked")

    (tmp_path / "scale.py").write_text(samples.PROBLEM_SOURCE)
    options = GraderOptions(device="cpu")
    taking = Intake(
        SimpleNamespace(take=locked, profile=locked), Tokens("", {}), Rate(9), find_problems([tmp_path]), options
    )
    body = line(1).text.encode()
    with pytest.raises(StoreBusy):
        taking.take(ANYONE, body)
    with pytest.raises(StoreBusy):
        profiles._profile(taking, ANYONE, body)
