"""Old databases keep working, newer ones are left alone, and the tables are what the migrations make."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlmodel import SQLModel

import db
from db import Store
from db.batches import Batches
from db.engine import database_url, make_engine, writing
from db.labels import EVERYTHING, LabelChoice
from db.leaderboard import leaderboard
from db.schema import NEWEST
from db.upgrade import upgrade
from grader.errors import StoreError
from tests.db.anew import make_standings_anew

VERSIONS = Path(db.__file__).parent / "migrations" / "versions"

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{newest}"


def upgrade() -> None:
    op.add_column("verdicts", sa.Column("note", sa.String(), nullable=True))
    op.execute("update verdicts set note = author")
    {then}
"""


GRADED_AGAIN = """
create temp table other as select * from verdicts where id = 1;
update other set id = 3, sample = 0, labels = '["vendor_library","reduced_precision"]', total_ci_low = 1.5;
insert into verdicts select * from other;
update other set id = 4, sample = 1, labels = '["vendor_library"]', total_ci_low = 2.5;
insert into verdicts select * from other;
update other set id = 5, labels = '[]', total_ci_low = 1.0;
insert into verdicts select * from other;
update other set id = 6, sample = 2, labels = '[]', status = 'wrong_output';
insert into verdicts select * from other;
"""
"""Verdicts with labels in a database of version 0002; the fourth is superseded by the fifth."""


def left_by(version, tmp_path):
    """A database as that version of the schema left it: one of the first version, migrated."""
    path = tmp_path / "grader.db"
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name("version_0001.sql").read_text())
    connection.close()
    migrate(path, versions_until(version, tmp_path / version))
    return path


def versions_until(version, folder):
    """The folder, with the migrations until that version."""
    shutil.copytree(VERSIONS, folder, ignore=lambda _, names: [one for one in names if one[:4] > version])
    return folder


def migrate(path, versions):
    url = database_url(path)
    engine = make_engine(url)
    try:
        with writing(engine).begin() as connection:
            upgrade(connection, url, versions=versions)
    finally:
        engine.dispose()


@pytest.fixture
def version_1(tmp_path):
    """A database as schema version 0001 left it."""
    return left_by("0001", tmp_path)


@pytest.fixture(params=sorted(path.name[:4] for path in VERSIONS.glob("[0-9]*.py")))
def any_version(request, tmp_path):
    return left_by(request.param, tmp_path)


def query(path, text):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def upgrade_to_next(path, tmp_path, then="pass"):
    versions = versions_until(NEWEST, tmp_path / "next")
    (versions / "9999_next.py").write_text(NEXT.format(newest=NEWEST, then=then))
    migrate(path, versions)


def test_a_database_of_any_version_is_read(any_version):
    with Store.open(any_version) as store:
        stored = store.get(1)
        assert stored.verdict.author == "ann"
        assert "ModelNew" in stored.submission_source
        for labels in (EVERYTHING, LabelChoice(without=("no_custom_kernel",))):
            assert [one.author for one in leaderboard(store, board="forward", labels=labels).entries] == ["ann", "bob"]


def test_standings_are_made_for_old_verdicts(any_version):
    """By the migrations as they would be by saving those verdicts now."""
    with Store.open(any_version) as store, store.writing() as session:
        migrated = standings(session), parts(session)
        make_standings_anew(session.connection())
        assert migrated == (standings(session), parts(session))
        assert len(migrated[0]) == 2


def test_standings_by_labels_are_made_for_old_verdicts(tmp_path):
    path = left_by("0002", tmp_path)
    connection = sqlite3.connect(path)
    connection.executescript(GRADED_AGAIN)
    connection.close()
    with Store.open(path) as store, store.writing() as session:
        migrated = parts(session)
        make_standings_anew(session.connection())
        assert migrated == parts(session)
        assert len(migrated) == 3


def standings(session):
    return {row[1:] for row in session.execute(text("select * from standings"))}


def parts(session):
    query = "select p.*, s.author from standings_by_labels p join standings s on s.id = p.standing_id"
    return {row[1:] for row in session.execute(text(query))}


def test_a_database_of_version_1_is_migrated_with_its_rows(version_1, tmp_path):
    upgrade_to_next(version_1, tmp_path)
    assert query(version_1, "select note from verdicts order by id") == [("ann",), ("bob",)]
    assert query(version_1, "select version_num from alembic_version") == [("9999",)]


def test_an_old_batch_is_not_forgotten_at_once(tmp_path):
    """Nothing says when it ended."""
    path = left_by("0007", tmp_path)
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("insert into batches values ('b', 'ann', null, 'd', 0, '2026-01-01')")
    connection.close()
    with Store.open(path) as store:
        Batches(store).forget_older(days=30)
        assert Batches(store).find("b") is not None


def test_old_verdicts_are_read_in_standard_terms(tmp_path):
    """Names of fields and codes change; what an author or a message says does not."""
    path = left_by("0008", tmp_path)
    message = 'a message with "code":"above_speed_of_light"'
    diagnosis = json.dumps(
        {"code": "above_speed_of_light", "stage": "timing", "severity": "warning", "message": message}
    )
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            """update verdicts set document = json_set(document, '$.diagnoses', json_array(json(?)),
            '$.backward.gradients[0].yardstick_rel_rms_error', 1e-7) where id = 1""",
            (diagnosis,),
        )
    connection.close()
    with Store.open(path) as store:
        verdict = store.get(1).verdict
    assert verdict.backward.gradients[0].baseline_rel_rms_error == 1e-7
    assert [(one.code, one.message) for one in verdict.diagnoses] == [("above_roofline_bound", message)]


def test_a_migration_that_fails_leaves_nothing_behind(version_1, tmp_path):
    with pytest.raises(RuntimeError, match="half way"):
        upgrade_to_next(version_1, tmp_path, then='raise RuntimeError("half way")')
    assert query(version_1, "select version_num from alembic_version") == [("0001",)]
    with Store.open(version_1) as store:
        assert store.get(2).verdict.author == "bob"


def test_a_database_from_the_future_is_left_alone(version_1):
    connection = sqlite3.connect(version_1)
    with connection:
        connection.execute("update alembic_version set version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match=rf"newer grader \(schema 9999, this one knows {NEWEST}\); upgrade the grader"):
        Store.open(version_1)
    assert query(version_1, "select version_num from alembic_version") == [("9999",)]


def test_the_migrations_make_the_tables(tmp_path):
    path = tmp_path / "grader.db"
    Store.open(path).close()
    engine = make_engine(database_url(path))
    try:
        with engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    finally:
        engine.dispose()


def test_the_newest_version_is_named():
    assert max(path.name[:4] for path in VERSIONS.glob("[0-9]*.py")) == NEWEST
