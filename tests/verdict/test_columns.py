"""The table of columns names what exists: fields of a verdict, fields of a row, the API's schema, a file's header."""

import dataclasses

import pytest

from db import Store
from db.rows import Row, read_rows
from db.tables import verdicts
from grader.report.export.flat import flat
from grader.verdict.columns import COLUMNS, EXPORTED, LISTED, STORED
from grader.verdict.models import Status
from tests import samples


@pytest.fixture
def row(tmp_path):
    """A stored verdict in short."""
    submission = samples.submission(label="v2", sample=3)
    with Store.open(tmp_path / "grader.db") as store, store.run(["grade"]) as run:
        store.save(samples.verdict(submission), submission, samples.problem(), run)
        (row,) = read_rows(store)
        return row


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_column_has_a_value_of_its_type(column):
    whole = samples.verdict().model_copy(update={"verdict_id": 1, "labels": ("vendor_library",)})
    for verdict in (
        whole,
        samples.verdict(status=Status.TIMEOUT, build=None, forward=None, backward=None, timing=None),
    ):
        value = column.value(verdict)
        assert isinstance(value, column.kind) or (value is None and (column.optional or column.name == "verdict_id"))
    assert column.description.endswith(".")


def test_names_are_unique_and_index_positions_have_no_gap():
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
    positions = sorted(column.index_position for column in COLUMNS if column.index_position)
    assert positions == list(range(1, len(positions) + 1))


def test_every_reader_has_the_columns(row):
    from grader.serve.api import VerdictInShort  # fastapi is an extra

    listed = {column.name for column in LISTED}
    assert set(verdicts.c.keys()) == {"id", "run_id", "submission_id", "document"} | {one.name for one in STORED}
    speedups = {"total", "forward", "total_share_of_bound", "forward_share_of_bound"}
    of_rows_only = {"built", "codes", "total_compile", "forward_compile"}
    assert {field.name for field in dataclasses.fields(Row)} == listed | speedups | {"id"} | of_rows_only
    assert set(VerdictInShort.model_fields) == listed | speedups | {"id"}
    assert list(flat(samples.verdict())) == [column.name for column in EXPORTED]


def test_a_row_repeats_the_verdict(row):
    verdict = samples.verdict(samples.submission(label="v2", sample=3))
    assert {one.name: getattr(row, one.name) for one in LISTED} == {one.name: one.value(verdict) for one in LISTED}
