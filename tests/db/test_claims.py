"""Two runs with one database: what one has claimed, the other leaves alone, until its process has ended."""

import os
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from db import Claims, Keeper, Store
from db import presence as claiming
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
    of = samples.submission()
    with Store.open(path) as store, store.run([]) as run:
        with Claims(store, run, print) as claims:
            assert claims.take("a")
            assert claims.take("b")
            Keeper(store, run, print).save(samples.verdict(of), of, samples.problem(), "a")
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
