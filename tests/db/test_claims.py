"""Two runs with one database: what one has claimed, the other leaves alone, until its process has ended."""

import os
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from db import Claims, Keeper, Run, Store
from db import presence as claiming
from db.presence import RunProgress
from grader.errors import ClaimLost
from grader.verdict.columns import iso_utc
from tests import samples

ROOT = Path(__file__).resolve().parents[2]

TAKER = """
import sys, time
from db import Claims, Store
with Store.open(sys.argv[1]) as store, store.run([]) as run, Claims(store, run, print) as claims:
    print(claims.take("a"), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "grader.db"


@pytest.fixture
def two(path):
    """The claims of two runs."""
    with (
        Store.open(path) as store,
        store.run([]) as one,
        store.run([]) as other,
        Claims(store, one, print) as first,
        Claims(store, other, print) as second,
    ):
        yield first, second


def rows(path, query):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def change(path, statement, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_a_claim_is_one_run_s(two):
    first, second = two
    assert first.take("a")
    assert first.take("a")
    assert not second.take("a")
    assert second.take("b")
    first.release("a")
    assert second.take("a")


def test_a_claim_ends_with_its_verdict_and_with_its_run(path):
    submission = samples.submission()
    with Store.open(path) as store, store.run([]) as run:
        with Claims(store, run, print) as claims:
            assert claims.take("a")
            assert claims.take("b")
            Keeper(store, run, print).save(samples.verdict(submission), submission, samples.problem(), "a")
            assert rows(path, "select key from claims") == [("b",)]
        assert rows(path, "select count(*) from claims") == [(0,)]
        assert rows(path, "select count(*) from graders") == [(0,)]


def test_the_claims_of_a_killed_process_are_free_at_once(path):
    Store.open(path).close()
    taker = subprocess.Popen([sys.executable, "-c", TAKER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert taker.stdout.readline() == "True\n"
    with Store.open(path) as store, store.run([]) as run, Claims(store, run, print) as claims:
        assert not claims.take("a")
        taker.kill()
        taker.wait()
        taker.stdout.close()
        assert claims.take("a")


@pytest.mark.parametrize(("silent", "free"), [(0.5, False), (2.0, True)])
def test_a_process_on_another_machine_is_dead_after_its_lease(path, two, silent, free):
    first, second = two
    assert first.take("a")
    seen = iso_utc(datetime.now(UTC) - timedelta(seconds=silent * claiming.LEASE_SECONDS))
    change(path, "update graders set machine = 'another', seen_at = ? where process = ?", seen, os.getpid())
    assert second.take("a") is free


@pytest.fixture
def lapsed(path, two):
    """The claims of two runs on other machines, of which the first has claimed `a` and `b` and lost its lease."""
    first, second = two
    assert first.take("a")
    assert first.take("b")
    change(path, "update graders set machine = run_id")
    change(path, "update graders set seen_at = '' where run_id = 1")
    return first, second


def test_a_run_whose_lease_lapsed_goes_on_with_what_nobody_took_over(path, lapsed):
    first, second = lapsed
    assert second.take("a")
    assert first.take("b")
    assert first.take("c")
    assert not first.take("a")
    assert not second.take("c")
    assert rows(path, "select key, run_id from claims order by key") == [("a", 2), ("b", 1), ("c", 1)]


def test_a_run_that_was_forgotten_comes_back(path, lapsed, monkeypatch):
    monkeypatch.setattr(claiming, "BEAT_SECONDS", 0.0)
    first, _ = lapsed
    for comes_back in (lambda: first.take("c"), first._presence._beat):
        change(path, "delete from claims")
        change(path, "delete from graders where run_id = 1")
        comes_back()
        assert rows(path, "select count(*) from graders") == [(2,)]


def test_a_claim_goes_with_the_first_verdict_whoever_stores_it(path, lapsed):
    _, second = lapsed
    assert second.take("a")
    submission = samples.submission()
    with Store.open(path) as store:
        Keeper(store, Run(1), print).save(samples.verdict(submission), submission, samples.problem(), "a")
        with pytest.raises(ClaimLost):
            Keeper(store, Run(2), print).save(samples.verdict(submission), submission, samples.problem(), "a")
    assert rows(path, "select run_id from verdicts") == [(1,)]
    assert rows(path, "select key from claims") == [("b",)]
    assert not list(path.parent.glob("*unsaved*"))


def test_a_run_that_was_silent_for_a_day_is_forgotten_with_its_claims(path, lapsed):
    with Store.open(path) as store, store.run([]) as run, Claims(store, run, print):
        assert rows(path, "select run_id from graders order by run_id") == [(2,), (run.id,)]
        assert rows(path, "select count(*) from claims") == [(0,)]


def test_a_run_says_that_it_lives_however_long_a_look_takes(path, monkeypatch):
    monkeypatch.setattr(claiming, "LOOK_SECONDS", 0.01)
    clock, looks = SimpleNamespace(now=0.0), []

    def slow():
        looks.append(clock)
        clock.now += claiming.BEAT_SECONDS
        return RunProgress(graded=0, failed=0)

    monkeypatch.setattr(claiming, "time", SimpleNamespace(monotonic=lambda: clock.now), raising=False)
    with Store.open(path) as store, store.run([]) as run, Claims(store, run, print, status=slow):
        change(path, "update graders set seen_at = ''")
        before = len(looks)
        while len(looks) < before + 3:
            threading.Event().wait(0.01)
        assert rows(path, "select seen_at from graders") != [("",)]


def test_a_run_says_that_it_lives(path, monkeypatch):
    monkeypatch.setattr(claiming, "BEAT_SECONDS", 0.01)
    with Store.open(path) as store, store.run([]) as run, Claims(store, run, print):
        change(path, "update graders set seen_at = ''")
        for _ in range(500):
            if rows(path, "select seen_at from graders") != [("",)]:
                return
            threading.Event().wait(0.01)
    raise AssertionError("no sign of life")


def test_a_locked_database_is_waited_for(path):
    said = []
    with (
        Store.open(path, busy_timeout_seconds=0.1) as store,
        store.run([]) as run,
        Claims(store, run, said.append) as claims,
    ):
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("begin immediate")
        threading.Timer(0.5, other.rollback).start()
        assert claims.take("a")
    assert said == [f"{path}: another process keeps the database locked; waiting until it is done"]


def test_a_run_lives_on_though_it_cannot_say_what_was_cancelled(path, monkeypatch):
    """As on a terminal that hung up; the author is cancelled once more, at the next look."""
    monkeypatch.setattr(claiming, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(claiming, "BEAT_SECONDS", 0.01)
    asked = []

    def hung_up(author):
        asked.append(author)
        if len(asked) == 1:
            raise OSError("the terminal is gone")

    with Store.open(path) as store, store.run([]) as run, Claims(store, run, print, cancelled=hung_up):
        change(path, f"insert into cancels (run_id, author) values ({run.id}, 'ann')")
        change(path, "update graders set seen_at = ''")
        for _ in range(500):
            if len(asked) == 2 and rows(path, "select seen_at from graders") != [("",)]:
                break
            threading.Event().wait(0.01)
    assert asked == ["ann", "ann"]
