"""The filtered list of all verdicts, and the best speedup over time."""

import pytest

from db import Store
from db.rows import read_rows
from grader.report.site.figures import failures
from grader.report.site.filters import PAGE_ROWS, Filter, choices
from grader.report.site.history import records
from grader.verdict.models import Diagnosis, Status
from tests.report.test_site import GPU, Site
from tests.serve.serving import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters")
    site = Site(folder)
    faults = [Diagnosis(code=code, stage="forward", message=".") for code in ("output_wrong", "narrow_inputs")]
    for number in range(PAGE_ROWS + 10):
        site.save("ann", text=f"n = {number}\n", where=GPU, total=1.0 + number % 5)
    site.save("bob & co", status=Status.WRONG_OUTPUT, text="b = 1\n", diagnoses=faults)
    site.save("eve", "add", text="e = 1\n", labels=("vendor_library", "triton"), total=2.0)
    site.store.close()
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    with Store.open(folder / "grader.db") as store:
        return read_rows(store)


@pytest.mark.parametrize(
    ("wanted", "authors"),
    [
        (Filter(author="bob & co"), ["bob & co"]),
        (Filter(status="wrong_output"), ["bob & co"]),
        (Filter(code="narrow_inputs"), ["bob & co"]),
        (Filter(problem="add"), ["eve"]),
        (Filter(label="vendor_library"), ["eve"]),
        (Filter(language="triton"), ["eve"]),
        (Filter(problem="add", status="correct"), ["eve"]),
        (Filter(problem="add", status="wrong_output"), []),
        (Filter(device="a CPU"), ["bob & co", "eve"]),
        (Filter(author="nobody"), []),
    ],
)
def test_only_what_has_everything_asked_for_is_listed(rows, wanted, authors):
    assert [row.author for row in wanted.matching(rows)] == authors


def test_a_filter_is_an_address():
    assert Filter(author="bob & co", status="correct").query() == "status=correct&author=bob+%26+co"
    assert Filter(code="grad_zero").query(page=3) == "code=grad_zero&page=3"
    assert Filter().query() == ""


def test_the_form_offers_what_there_is_most_frequent_first(rows):
    offered = choices(rows).by_field
    assert offered["status"] == (("correct", PAGE_ROWS + 11), ("wrong_output", 1))
    assert dict(offered["code"]) == {"output_wrong": 1, "narrow_inputs": 1}
    assert offered["label"] == (("vendor_library", 1),)
    assert offered["language"] == (("triton", 1),)


def test_failures_are_ranked_by_their_first_code(rows):
    assert failures(rows) == [("output_wrong", 1)]


def test_the_best_over_time_only_rises(rows):
    found = records(row for row in rows if row.author == "ann")
    assert [one.speedup.value for one in found] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert records(row for row in rows if row.author == "bob & co") == []


def test_the_server_filters_all_verdicts_and_counts_them(folder):
    with Server(folder / "grader.db", "--title", "Kernels of the week") as server:
        page = server.ask("verdicts.html?author=ann&page=2")[2]
        assert f"<b>{PAGE_ROWS + 10}</b> of {PAGE_ROWS + 12} verdicts match" in page
        assert page.count('<tr>\n<th scope="row"') == 10
        assert 'href="verdicts.html?author=ann" rel="prev"' in page
        assert "<title>All verdicts · Kernels of the week</title>" in page
        assert '<option value="wrong_output" selected>' in server.ask("verdicts.html?status=wrong_output")[2]
        escaped = server.ask("verdicts.html?author=%22%3E%3Cscript%3E")[2]
        assert "<b>0</b> of" in escaped
        assert '"><script>' not in escaped.partition("<main")[2]
        assert 'href="verdicts.html?code=output_wrong"' in server.ask("")[2]
