"""Verdicts in hand survive a database that is locked, deleted, replaced or given up on."""

import json
import resource
import signal
import sqlite3
import threading

import pytest
from sqlalchemy.exc import IntegrityError

from db import Keeper, Store
from db import keeper as keeping
from db.keeper import SUFFIX, Unsaved
from grader.errors import StoreError
from tests import samples


@pytest.fixture
def said():
    return []


@pytest.fixture
def path(tmp_path):
    return tmp_path / "grader.db"


def save(keeper, author):
    submission = samples.submission(author=author)
    return keeper.save(samples.verdict(submission), submission, samples.problem())


def authors(path):
    connection = sqlite3.connect(path)
    try:
        return [author for (author,) in connection.execute("select author from verdicts order by id")]
    finally:
        connection.close()


def change(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()


def lock(path):
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("begin immediate")
    return connection


def test_saving_waits_while_the_database_is_locked_and_says_so_once(path, said):
    with Store.open(path, busy_timeout_seconds=0.1) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        other = lock(path)
        threading.Timer(1.0, other.rollback).start()
        assert save(keeper, "ann").verdict_id == 1
    assert said == [f"{path}: another process keeps the database locked; waiting until it is done"]


def test_a_wait_that_is_interrupted_keeps_the_verdict(path):
    said = []

    def interrupt(message):
        said.append(message)
        if "locked" in message:
            raise KeyboardInterrupt

    with Store.open(path, busy_timeout_seconds=0.1) as store, store.run([]) as run:
        keeper, other = Keeper(store, run, interrupt), lock(path)
        with pytest.raises(KeyboardInterrupt):
            save(keeper, "ann")
        other.rollback()
        assert said[1].startswith(f"1 verdict is kept in {path}{SUFFIX}")
        assert Keeper(store, run, said.append).take_over() == 1
    assert authors(path) == ["ann"]


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_all_verdicts_of_a_run_survive_a_database_that_is_gone(path, said, replaced):
    with Store.open(path) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        save(keeper, "ann")
        save(keeper, "bob")
        for file in path.parent.iterdir():
            file.unlink()
        if replaced:
            Store.open(path).close()
        with pytest.raises(StoreError, match=f"replaced meanwhile; 3 verdicts are kept in {path}{SUFFIX}"):
            save(keeper, "cid")
    with Store.open(path) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        assert keeper.take_over() == 3
        assert keeper.take_over() == 0
    assert authors(path) == ["ann", "bob", "cid"]
    assert not path.with_name(path.name + SUFFIX).exists()


def test_a_database_that_is_gone_is_noticed_before_a_verdict_and_each_is_kept_once(path, said):
    with Store.open(path) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        save(keeper, "ann")
        keeper.check()
        for file in path.parent.iterdir():
            file.unlink()
        with pytest.raises(StoreError, match=f"replaced meanwhile; 1 verdict is kept in {path}{SUFFIX}"):
            keeper.check()
        with pytest.raises(StoreError, match=f"replaced meanwhile; 2 verdicts are kept in {path}{SUFFIX}"):
            save(keeper, "bob")
    with Store.open(path) as store, store.run([]) as run:
        assert Keeper(store, run, said.append).take_over() == 2
    assert authors(path) == ["ann", "bob"]


def test_a_folder_that_is_gone_leaves_the_temporary_folder(tmp_path, said, monkeypatch):
    path = tmp_path / "gone" / "grader.db"
    path.parent.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Store.open(path) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        path.parent.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match=f"1 verdict is kept in {tmp_path}/grader.db{SUFFIX}"):
            save(keeper, "ann")


def test_a_file_that_is_something_else_stays(path, said):
    file = path.with_name(path.name + SUFFIX)
    file.write_text("notes\n")
    with (
        Store.open(path) as store,
        store.run([]) as run,
        pytest.raises(StoreError, match="damaged; move it away"),
    ):
        Keeper(store, run, said.append).take_over()
    assert file.read_text() == "notes\n"


def unsaved(author):
    submission = samples.submission(author=author)
    return Unsaved(verdict=samples.verdict(submission), submission=submission, problem=samples.problem())


@pytest.fixture
def meanwhile(monkeypatch):
    """`meanwhile(action)` begins the action in a thread while a file is read; it may have to wait for the reader."""
    threads = []

    def begin(action):
        def reading(text):
            if not threads:
                threads.append(threading.Thread(target=action))
                threads[0].start()
                threads[0].join(1.0)
            return Unsaved.model_validate(json.loads(text))

        monkeypatch.setattr(Unsaved, "model_validate_json", reading)
        return threads

    return begin


def test_a_verdict_that_is_kept_while_others_are_taken_over_stays(path, said, meanwhile):
    keeping._append([unsaved("ann")], path)
    threads = meanwhile(lambda: keeping._append([unsaved("bob")], path))
    with Store.open(path) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        keeper.take_over()
        threads[0].join()
        keeper.take_over()
    assert authors(path) == ["ann", "bob"]


def test_two_runs_that_start_at_once_take_over_each_verdict_once(path, said, meanwhile):
    keeping._append([unsaved("ann"), unsaved("bob")], path)
    counts = []
    with Store.open(path) as store, store.run([]) as run, store.run([]) as other:
        threads = meanwhile(lambda: counts.append(Keeper(store, other, said.append).take_over()))
        counts.append(Keeper(store, run, said.append).take_over())
        threads[0].join()
    assert authors(path) == ["ann", "bob"]
    assert sorted(counts) == [0, 2]


def test_a_failure_halfway_saves_none_and_keeps_all(path, said):
    keeping._append([unsaved("ann"), unsaved("bob")], path)
    with Store.open(path) as store, store.run([]) as run:
        keeper = Keeper(store, run, said.append)
        refusal = "create trigger refusal before insert on verdicts when new.author = 'bob'"
        change(path, f"{refusal} begin select raise(abort, 'no'); end")
        with pytest.raises(IntegrityError):
            keeper.take_over()
        change(path, "drop trigger refusal")
        assert keeper.take_over() == 2
    assert authors(path) == ["ann", "bob"]


def test_half_a_line_on_a_full_disk_stops_no_later_run(path, said, monkeypatch):
    """Half of it is written beside the database, the whole to the temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(path.parent))
    (path.parent / "disk").mkdir()
    path = path.parent / "disk" / path.name
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store.open(path) as store, store.run([]) as run:
        with pytest.raises(StoreError):
            raise_from_full_disk(Keeper(store, run, said.append), path, limits)
        file = path.with_name(path.name + SUFFIX)
        assert file.read_text() == ""
        assert Keeper(store, run, said.append).take_over() == 0


def raise_from_full_disk(keeper, path, limits):
    path.with_name(path.name + SUFFIX).touch()
    path.unlink()  # so that it is kept in a file
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        save(keeper, "ann")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_run_that_is_killed_between_saving_and_deleting_saves_none_twice(path, said, monkeypatch):
    kept = [unsaved("ann"), unsaved("bob")]
    keeping._append(kept, path)
    with Store.open(path) as store, store.run([]) as run:
        with monkeypatch.context() as killed:
            killed.setattr("pathlib.Path.unlink", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                Keeper(store, run, said.append).take_over()
        keeping._append([unsaved("cid")], path)
        assert Keeper(store, run, said.append).take_over() == 1
    assert authors(path) == ["ann", "bob", "cid"]
