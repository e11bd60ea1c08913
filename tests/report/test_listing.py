"""Listings as text: each item as it is known, no cell that breaks a line."""

import csv
import json

import pytest

from grader.grading.problem_check import Fault, ProblemCheck
from grader.report.listing import ListFormat, print_listing
from grader.report.tables import CHECKS as LISTING

CHECKS = (
    ProblemCheck(id="scale", path="/p/scale.py", gradable=True, remark="a constant passes"),
    ProblemCheck(
        id="broken", path="/p/broken.py", gradable=False, fault=Fault(code="does_not_run", reason="=a\tb\n\x1b[31mc")
    ),
    ProblemCheck(id="large", path="/p/large.py", gradable=None, remark="not tried: 100 GiB"),
)


@pytest.fixture
def printed(capsys):
    def call(form):
        seen = []

        def checks():
            for check in CHECKS:
                yield check
                seen.append(capsys.readouterr().out)

        print_listing(LISTING, checks(), form)
        assert all(seen), "each is printed before the next is made"
        return "".join(seen) + capsys.readouterr().out

    return call


@pytest.mark.parametrize("form", [None, ListFormat.PLAIN])
def test_plain_lines_have_a_tab_between_cells(printed, form):
    assert [line.split("\t") for line in printed(form).splitlines()] == [
        ["problem", "gradable", "code", "remark"],
        ["scale", "yes", "", "a constant passes"],
        ["broken", "no", "does_not_run", r"=a\tb\n\x1b[31mc"],
        ["large", "not tried", "", "not tried: 100 GiB"],
    ]


def test_json_is_an_object_per_line(printed):
    assert [json.loads(line)["id"] for line in printed(ListFormat.JSON).splitlines()] == ["scale", "broken", "large"]


def test_csv_has_no_formula(printed):
    rows = list(csv.DictReader(printed(ListFormat.CSV).splitlines()))
    assert [row["problem"] for row in rows] == ["scale", "broken", "large"]
    assert rows[1]["remark"].startswith("'=a")


def test_a_table_is_a_line_per_check(printed):
    lines = printed(ListFormat.TABLE).splitlines()
    assert [line.split()[0] for line in lines] == ["gradable", "not", "not"]
