"""Commands that read leave the database as it is, and a damaged database gives one line with a remedy."""

import json
import random
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from db import Store
from db.read_only import open_to_read
from grader.errors import StoreError
from grader.verdict.models import Status
from tests import samples
from tests.cli.conftest import cli
from tests.db.test_schema import left_by
from tests.db.test_trouble import locked_away, unwritable

__all__ = ["cli", "unwritable"]

COMMANDS = {
    "leaderboard": ["leaderboard", "--format", "json"],
    "export": ["export"],
    "csv": ["export", "--format", "csv"],
    "show": ["show", "1", "--json"],
    "report": ["report", "--out", "site"],
}


def fill(path):
    """A database of a few dozen pages, at rest: one file, nothing beside it."""
    with Store.open(path) as store, store.run(["grade"]) as run:
        for number in range(12):
            submission = samples.submission(
                author=f"author {number % 4}",
                problem_id=("scale", "add")[number % 2],
                source=f"{samples.SUBMISSION_SOURCE}# {number}\n" + "# filler\n" * 300,
            )
            status = (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_OUTPUT)[number % 3]
            verdict = samples.verdict(
                submission, status, total=2.0 + number, labels=("vendor_library",) if number % 2 else ()
            )
            store.save(verdict, submission, samples.problem(submission.problem_id), run)
    connection = sqlite3.connect(path)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()


@pytest.fixture
def open_folder():
    """A folder that every user may write, for reports."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_file_in_a_read_only_folder(cli, unwritable, open_folder, command):
    path = unwritable / "grader.db"
    fill(path)
    arguments = [one if one != "site" else open_folder / "site" for one in COMMANDS[command]]
    right = cli(*arguments, "--db", path)  # which also imports what another user may not read
    shutil.rmtree(open_folder / "site", ignore_errors=True)
    path.chmod(0o444)
    before = path.read_bytes()
    with locked_away(unwritable):
        result = cli(*arguments, "--db", path)
    assert (result.code, result.err) == (0, "")
    assert result.out == right.out
    assert path.read_bytes() == before
    assert [one.name for one in unwritable.iterdir()] == ["grader.db"]


@pytest.mark.parametrize("command", COMMANDS)
def test_reading_leaves_the_file_as_it_is(cli, tmp_path, command):
    fill(tmp_path / "grader.db")
    before = (tmp_path / "grader.db").read_bytes()
    assert cli(*COMMANDS[command]).code == 0
    assert (tmp_path / "grader.db").read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} <= {"grader.db", "site"}


def test_a_store_for_reading_refuses_to_write(tmp_path):
    fill(tmp_path / "grader.db")
    with open_to_read(tmp_path / "grader.db") as store, pytest.raises(StoreError, match="is read-only"):
        store.run([]).__enter__()


def test_an_older_schema_is_migrated_first(tmp_path):
    with open_to_read(left_by("0001", tmp_path)) as store:
        assert store.get(1).verdict.author == "ann"


def test_an_older_schema_that_cannot_be_migrated(unwritable):
    path = left_by("0001", unwritable)
    path.chmod(0o444)
    with locked_away(unwritable), pytest.raises(StoreError, match="the database is read-only; make the file and its"):
        open_to_read(path)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_give_one_line_or_an_answer(cli, tmp_path, seed):
    """The offsets are spread over the whole file; half of the damage is to a run of bytes."""
    path = tmp_path / "grader.db"
    path.write_bytes(template(tmp_path))
    draw = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 20])):
        start = draw.randrange(len(content)) if seed % 3 else draw.randrange(100, 4096)
        for offset in range(start, min(len(content), start + draw.choice([1, 64]))):
            content[offset] ^= draw.randrange(1, 256)
    path.write_bytes(content)
    for name, command in COMMANDS.items():
        result = cli(*command)
        if result.code:
            assert (result.code, result.err.count("\n")) == (2, 1), result.err
            assert result.err.startswith("grader: ")
        elif name in ("leaderboard", "show"):
            json.loads(result.out)


_TEMPLATE = []


def template(folder):
    if not _TEMPLATE:
        fill(folder / "template.db")
        _TEMPLATE.append((folder / "template.db").read_bytes())
    return _TEMPLATE[0]
