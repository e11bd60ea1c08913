"""The queries of db/datasette.yaml say the truth about a real database."""

import sqlite3
from pathlib import Path

import pytest
import yaml

from db import Store
from db.leaderboard import leaderboard
from grader.verdict.models import Status
from grader.verdict.stages import StageSeconds
from tests import samples

METADATA = yaml.safe_load((Path(__file__).resolve().parents[2] / "db" / "datasette.yaml").read_text())
GRADER = METADATA["databases"]["grader"]
QUERIES = GRADER["queries"]


@pytest.fixture
def database(tmp_path):
    """Two authors, two problems, a text that was graded twice."""
    with Store.open(tmp_path / "grader.db") as store, store.run(["grade"]) as run:
        for position, (author, problem_id, status, speedup) in enumerate(
            (
                ("ann", "scale", Status.CORRECT, 9.0),
                ("ann", "scale", Status.CORRECT, 2.0),
                ("bob", "scale", Status.CORRECT, 3.0),
                ("bob", "add", Status.MISSING_BACKWARD, 5.0),
                ("eve", "add", Status.WRONG_OUTPUT, 5.0),
                ("eve", "add", Status.GRADER_ERROR, 5.0),
            )
        ):
            submission = samples.submission(author, problem_id)
            seconds = StageSeconds(build=position, forward=1.0)
            verdict = samples.verdict(submission, status, total=speedup, minute=position, seconds=seconds)
            store.save(verdict, submission, samples.problem(problem_id), run)
    return tmp_path / "grader.db"


@pytest.fixture
def ask(database):
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row

    def rows(name, **values):
        query = QUERIES[name]
        given = {parameter: values.pop(parameter, "") for parameter in query.get("params", [])}
        assert not values
        return [dict(row) for row in connection.execute(query["sql"], given)]

    yield rows
    connection.close()


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_runs_and_is_explained(ask, name):
    assert isinstance(ask(name), list)
    assert QUERIES[name]["title"]
    assert QUERIES[name]["description"].endswith(".")


def test_every_table_is_there(ask, database):
    connection = sqlite3.connect(database)
    tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    connection.close()
    assert set(GRADER["tables"]) == tables - {"alembic_version"}


def test_the_leaderboard_is_the_one_that_the_grader_prints(ask, database):
    with Store.open(database) as store:
        entries = leaderboard(store).entries
    found = ask("leaderboard")
    assert [(row["rank"], row["author"], row["problem"], row["id"]) for row in found] == [
        (entry.rank, entry.author, entry.problem, entry.verdict_id) for entry in entries
    ]
    assert [row["author"] for row in found] == ["bob", "ann"]
    assert [row["author"] for row in ask("leaderboard", problem="add")] == []


def test_shares_counts_and_times(ask):
    shares = {row["author"]: (row["right_forward"], row["missing_share"]) for row in ask("missing_backward")}
    assert shares == {"ann": (1, 0.0), "bob": (2, 0.5)}
    counts = {(row["author"], row["status"]): row["verdicts"] for row in ask("status_by_author")}
    assert counts["ann", "correct"] == 2
    assert counts["eve", "grader_error"] == 1
    assert [(row["id"], row["code"]) for row in ask("recent")][:2] == [(6, "output_wrong"), (5, "output_wrong")]
    assert [(row["id"], row["seconds"]) for row in ask("slowest")][:2] == [(6, 6.0), (5, 5.0)]


def test_a_text_is_found_by_the_start_of_its_hash(ask):
    whole = samples.submission().source_hash
    assert [row["id"] for row in ask("by_source", hash=whole[:10].upper())] == [1, 2, 3, 4, 5, 6]
    assert ask("by_source", hash="0000000000") == []
    assert ask("by_source") == []
