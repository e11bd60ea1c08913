"""Real SQLite files in the states that files get into: each gives one line with a remedy, or just works."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from db import Store
from grader.errors import StoreError
from tests import samples

ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import sys
from tests import samples
from db import Store
path, author, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
of = samples.submission(author=author)
with Store.open(path) as store, store.run(["grade"]) as run:
    for _ in range(count):
        print(store.save(samples.verdict(of), of, samples.problem(), run).verdict_id, flush=True)
"""


def writer(path, author, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), author, str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def count(path, query="select count(*) from verdicts"):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchone()[0]
    finally:
        connection.close()


def test_opening_makes_a_database_and_opening_again_keeps_it(tmp_path):
    path = tmp_path / "grader.db"
    submission = samples.submission()
    with Store.open(path) as store, store.run([]) as run:
        store.save(samples.verdict(submission), submission, samples.problem(), run)
    with Store.open(f"sqlite:///{path}") as store:
        assert store.get(1).verdict.author == "ann"
    assert count(path, "pragma journal_mode") == "wal"


def test_an_empty_file_becomes_a_database(tmp_path):
    path = tmp_path / "grader.db"
    path.touch()
    Store.open(path).close()
    assert count(path) == 0


def test_a_database_that_must_exist_is_not_made(tmp_path):
    with pytest.raises(StoreError, match="there is no such database; `grader grade` makes one"):
        Store.open(tmp_path / "grader.db", must_exist=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"author,status\nann,correct\n" * 100, b"\0" * 8192, b"x"])
def test_a_file_that_is_no_database(tmp_path, content):
    path = tmp_path / "notes.csv"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"notes.csv: the file is not an SQLite database; name another file with --db"):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_folder(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path)


def test_a_missing_folder(tmp_path):
    with pytest.raises(StoreError, match="check that its folder exists"):
        Store.open(tmp_path / "none" / "grader.db")


def test_a_database_of_another_program(tmp_path):
    path = tmp_path / "browser.db"
    connection = sqlite3.connect(path)
    connection.execute("create table bookmarks (url text)")
    connection.close()
    with pytest.raises(StoreError, match="an SQLite database of another program"):
        Store.open(path)
    assert count(path, "select count(*) from sqlite_master") == 1


@pytest.mark.parametrize("url", ["postgresql://here/grades", "nonsense://here/grades", "://"])
def test_another_kind_of_database(url):
    with pytest.raises(StoreError, match="write a path, or sqlite:///path"):
        Store.open(url)


def test_a_locked_database(tmp_path):
    path = tmp_path / "grader.db"
    Store.open(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    submission = samples.submission()
    try:
        with Store.open(path, busy_timeout_seconds=0.1) as store:
            holder.execute("begin immediate")
            with pytest.raises(StoreError, match="another process keeps the database locked; wait"), store.run([]):
                pass
            holder.execute("rollback")
            with store.run([]) as run:
                assert store.save(samples.verdict(submission), submission, samples.problem(), run).verdict_id == 1
    finally:
        holder.close()


@pytest.fixture
def locking(tmp_path):
    """A store that waits for 0.1 s, and a connection to lock its database with."""
    path = tmp_path / "grader.db"
    with Store.open(path, busy_timeout_seconds=0.1) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        yield store, holder
        holder.close()


@pytest.mark.parametrize("error", [StoreError("1 verdict is kept"), KeyboardInterrupt("stop"), ValueError("ours")])
def test_the_error_that_ends_a_run_is_not_hidden_by_a_database_that_fails(locking, error):
    store, holder = locking

    def fail():
        holder.execute("begin immediate")
        raise error

    with pytest.raises(type(error), match=str(error)), store.run([]):
        fail()


def test_a_run_that_is_done_waits_for_a_locked_database(locking):
    store, holder = locking
    said = []

    def say(message):
        said.append(message)
        holder.execute("rollback")

    with store.run([], say=say):
        holder.execute("begin immediate")
    assert said == [f"{store.path}: another process keeps the database locked; waiting until it is done"]
    assert count(store.path, "select count(*) from runs where outcome = 'finished'") == 1


def test_a_database_locked_before_it_exists(tmp_path):
    path = tmp_path / "grader.db"
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("begin exclusive")
        with pytest.raises(StoreError, match="another process keeps the database locked"):
            Store.open(path, busy_timeout_seconds=0.1)
    finally:
        holder.close()


def test_a_read_only_database_can_be_read(tmp_path):
    path = tmp_path / "grader.db"
    submission = samples.submission()
    with Store.open(path) as store, store.run([]) as run:
        store.save(samples.verdict(submission), submission, samples.problem(), run)
    with Store.open(f"sqlite:///file:{path}?mode=ro&uri=true", must_exist=True) as store:
        assert store.get(1).verdict.status == "correct"
        with pytest.raises(StoreError, match="the database is read-only; make the file and its folder writable"):
            store.run([]).__enter__()


@pytest.fixture
def unwritable():
    """A folder that this user may read and not write; as root, the test runs as another user for the while."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield folder
        folder.chmod(0o700)


@contextmanager
def locked_away(folder):
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_without_write_permission(unwritable):
    path = unwritable / "grader.db"
    path.touch()
    path.chmod(0o444)
    with locked_away(unwritable), pytest.raises(StoreError, match="the database is read-only; make the file and its"):
        Store.open(path)


def test_a_file_without_read_permission(unwritable):
    path = unwritable / "grader.db"
    path.write_text("secret")
    path.chmod(0)
    with locked_away(unwritable), pytest.raises(StoreError, match="the database may not be used by this user"):
        Store.open(path)


def test_a_folder_without_write_permission(unwritable):
    with locked_away(unwritable), pytest.raises(StoreError, match="check that its folder exists and may be written"):
        Store.open(unwritable / "grader.db")


def test_every_printed_verdict_survives_a_kill(tmp_path):
    path = tmp_path / "grader.db"
    process = writer(path, "ann", 100_000)
    printed = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    printed += process.stdout.readlines()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    last = max(int(line) for line in printed if line.endswith("\n"))
    assert count(path, "pragma integrity_check") == "ok"
    assert last <= count(path) <= last + 1
    assert count(path, "select count(*) from runs where finished_at is null") == 1
    submission = samples.submission()
    with Store.open(path) as store:
        assert (
            store.find(submission, samples.problem(), [samples.environment()], samples.verdict(submission).settings)
            is not None
        )


def test_two_writers_that_start_at_once_both_finish(tmp_path):
    path = tmp_path / "grader.db"
    writers = [writer(path, author, 100) for author in ("ann", "bob")]
    ids = [int(line) for process in writers for line in process.stdout]
    assert [process.wait() for process in writers] == [0, 0]
    for process in writers:
        process.stdout.close()
    assert sorted(ids) == list(range(1, 201))
    assert count(path, "select count(distinct author) from verdicts") == 2


@pytest.mark.alone
def test_a_reader_is_not_kept_waiting_by_a_writer(tmp_path):
    path = tmp_path / "grader.db"
    Store.open(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("begin immediate")
        began = time.monotonic()
        with Store.open(path, must_exist=True) as store, pytest.raises(StoreError, match="there is none yet"):
            store.get(1)
        assert time.monotonic() - began < 5
    finally:
        holder.close()
