"""The server as programs meet it: a process of its own, real requests, a database that others write to."""

import json
import math
import os
import re
import shutil
import signal
import socket
import sqlite3
import time

import pytest

from db.labels import SOLUTIONS
from db.read_only import open_read_only
from grader.errors import StoreError
from grader.report.site import names
from grader.report.site.pages import STATIC
from grader.serve.snapshot import Snapshots
from grader.verdict.models import Status
from tests.report.test_site import HOSTILE, Site, full, hostile
from tests.serve.serving import ROOT, Events, Server, command


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server with a bit of everything, for tests that change nothing."""
    site = Site(tmp_path_factory.mktemp("serve"))
    full(site)
    hostile(site, HOSTILE)
    with Server(site.folder / "grader.db") as server:
        server.site = site
        yield server
    site.store.close()


# ------------------------------------------------------------------------------------------------------- pages


def test_it_serves_the_very_pages_of_the_static_site(shared):
    pages = shared.site.write()
    around = re.compile(r'<a href="[^"]*live\.html">Live</a>\n|<p><a href="[^"]*compare/\d+\.html">.*?</p>\n')
    # Lists of all verdicts, which only a server filters.
    listed = re.compile(r'href="((?:\.\./)*)verdicts\.html"')
    coded = re.compile(r'<a href="verdicts\.html\?code=[^"]*">(<code>[^<]*</code>)</a>')
    for name, page in pages.items():
        status, _, text = shared.ask(name)
        assert status == 200, name
        text = coded.sub(r"\1", listed.sub(r'href="\1lists/1.html"', around.sub("", text)))
        assert text.split() == page.path.read_text().split(), name


def test_every_answer_has_the_headers_that_protect_its_reader(shared):
    for path in ("/", "live.html", "verdicts/1.html", "nothing", "api/verdicts", "verdicts/x.html"):
        _, headers, _ = shared.ask(path)
        assert "default-src 'none'" in headers["Content-Security-Policy"], path
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
        assert "unsafe" not in headers["Content-Security-Policy"], path
        assert headers["X-Content-Type-Options"] == "nosniff", path


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8000", 421),
        ("", 421),
        ("[", 421),
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
    ],
)
def test_a_name_that_was_rebound_to_this_machine_gets_nothing(shared, host, status):
    answered, _, text = shared.ask("/", Host=host)
    assert answered == status
    assert ("ann" in text) == (status == 200)


def test_a_number_that_python_does_not_read_is_refused(shared):
    for path in ("verdicts/{}.html", "compare/1-{}.html", "lists/{}.html"):
        assert shared.ask(path.format("1" * 5000))[0] == 414
        assert shared.ask(path.format("1" * 1000))[0] == 404


def test_what_is_not_there_is_said_in_a_page_whose_links_lead_back(shared):
    for path in ("nothing", "a/b/c", "verdicts/999.html", "lists/99.html", "problems/p-0.html", "docs", "submit.html"):
        status, _, text = shared.ask(path)
        assert status == 404, path
        assert f'href="{"../" * path.count("/")}index.html"' in text, path


def test_any_two_submissions_for_one_problem_are_compared(shared):
    assert "compare/2-3.html" in shared.ask("compare/3.html")[2]
    status, _, text = shared.ask("compare/1-3.html")
    assert status == 200
    assert '<tr class="removed"><td class="num">1</td><td class="num"></td><td>- x = 1</td></tr>' in text
    assert '<tr class="added"><td class="num"></td><td class="num">1</td><td>+ b = 1</td></tr>' in text
    assert shared.ask("compare/1-5.html")[0] == 404


def test_a_verdict_reached_since_is_there_at_once(site):
    full(site)
    with Server(site.folder / "grader.db") as server:
        assert server.ask("verdicts/8.html")[0] == 404
        site.save("new", text="n = 1\n")
        status, _, text = server.ask("verdicts/8.html")
        assert (status, "n = 1" in re.sub("<[^>]*>", "", text)) == (200, True)
        assert names.author_page("new") in server.ask("/")[2]


def test_what_takes_long_to_read_is_read_beside_the_requests(site, monkeypatch):
    full(site)
    monkeypatch.setattr("grader.serve.snapshot._QUICK_SECONDS", math.inf)
    snapshots = Snapshots(site.store, site.folder / "grader.db", STATIC, SOLUTIONS)
    site.save("new", text="n = 1\n")
    assert snapshots.current().newest == 8
    monkeypatch.setattr("grader.serve.snapshot._QUICK_SECONDS", -1.0)
    site.save("new", text="n = 2\n")
    assert snapshots.current().newest == 8
    assert snapshots.current(at_least=9).newest == 9
    site.save("new", text="n = 3\n")
    deadline = time.monotonic() + 20
    while snapshots.current().newest < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [row.id for row in snapshots.current().rows] == list(range(1, 11))


def test_verdicts_that_were_deleted_are_gone(site, monkeypatch):
    full(site)
    monkeypatch.setattr("grader.serve.snapshot._QUICK_SECONDS", math.inf)
    snapshots = Snapshots(site.store, site.folder / "grader.db", STATIC, SOLUTIONS)
    with site.store.reading() as session:
        session.connection().exec_driver_sql("delete from verdicts where id in (2, 7)")
        session.commit()
    assert [row.id for row in snapshots.current().rows] == [1, 3, 4, 5, 6]


# --------------------------------------------------------------------------------------------------------- API


def test_the_api_lists_filters_and_goes_on(shared):
    first = shared.json("api/verdicts?limit=3")
    assert [one["id"] for one in first["verdicts"]] == [1, 2, 3]
    after = shared.json(f"api/verdicts?after={first['next_after']}")
    assert [one["id"] for one in after["verdicts"]] == [4, 5, 6, 7, 8, 9]
    assert after["next_after"] is None
    missing = shared.json("api/verdicts?author=bob&status=missing_backward")["verdicts"]
    assert [one["id"] for one in missing] == [3]


def test_the_api_has_whole_verdicts_boards_and_problems(shared):
    assert shared.json("api/verdicts/1")["timing"]["total"]["speedup"] == 2.0
    assert shared.json("api/leaderboard?problem=scale")["entries"][0]["author"] == "ann"
    boards = {
        query: shared.json(f"api/leaderboard?problem=add&{query}")
        for query in ("", "having=cuda_graph", "all=1", "language=triton")
    }
    assert [len(found["entries"]) for found in boards.values()] == [2, 0, 2, 0]
    labels = {"having": ["cuda_graph"], "without": ["wraps_reference"], "precision": "fp32"}
    assert boards["having=cuda_graph"]["labels"] == labels
    assert boards["language=triton"]["labels"]["having"] == ["triton"]
    assert shared.ask("api/leaderboard?without=nosuch")[0] == 422
    assert {"id": "add", "submissions": 3, "right_forward": 2, "correct": 2} in shared.json("api/problems")
    assert [shared.ask(f"api/verdicts/{one}")[0] for one in ("99", "0", "x", 2**70)] == [404, 422, 422, 422]


@pytest.mark.parametrize("path", ["verdicts", "verdicts/8", "leaderboard?all=1", "problems", "../metrics"])
def test_no_answer_has_a_character_that_breaks_or_reorders_a_line(shared, path):
    status, _, text = shared.ask(f"api/{path}".replace("api/../", ""))
    assert status == 200
    assert "owned" in text
    assert text.replace("\n", "").isprintable()


def test_the_schema_names_every_address_and_what_it_answers(shared):
    schema = shared.json("api/openapi.json")
    assert set(schema["paths"]) == {
        f"/api/{one}" for one in ("verdicts", "verdicts/{verdict_id}", "leaderboard", "problems")
    }
    assert {"Verdict", "Leaderboard", "FigureTiming"} <= set(schema["components"]["schemas"])


# -------------------------------------------------------------------------------------------------------- live


def test_verdicts_arrive_as_they_are_reached_and_a_connection_resumes(site):
    site.save("ann")
    with Server(site.folder / "grader.db") as server:
        events = Events(server, "?since=1")
        assert "not ended" not in events.next("runs")[1]["rows"]
        site.save("<b>bob</b>", text="b = 1\n")
        event_id, data = events.next("verdict")
        assert event_id == "2"
        assert "&lt;b&gt;bob&lt;/b&gt;" in data["row"]
        assert "<b>" not in data["row"]
        events.close()
        site.save("eve", text="e = 1\n", status=Status.MISSING_BACKWARD)
        again = Events(server, "?since=1", **{"Last-Event-ID": "2"})
        event_id, data = again.next("verdict")
        assert (event_id, data["id"]) == ("3", 3)
        assert "missing backward" in data["row"]
        again.close()


def test_a_run_in_progress_is_told_from_one_that_ended(site):
    with Server(site.folder / "grader.db") as server:
        events = Events(server)
        assert events.next("runs")[1]["rows"].strip() == ""
        with site.store.run(["grade", "submissions/"]):
            running = events.next("runs")[1]["rows"]
        ended = events.next("runs")[1]["rows"]
        events.close()
    assert "grade submissions/" in running
    assert "not ended" in running
    assert "finished" in ended


# ---------------------------------------------------------------------------------------------------- database


def test_the_server_cannot_write(site):
    site.save()
    with (
        open_read_only(site.folder / "grader.db") as store,
        pytest.raises(StoreError, match="read-only"),
        store.run([]),
    ):
        pass


def test_it_reads_while_another_process_writes(site):
    site.save()
    with open_read_only(site.folder / "grader.db") as store:
        writer = sqlite3.connect(site.folder / "grader.db")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE verdicts SET author = 'later'")
        assert store.get(1).verdict.author == "ann"
        writer.commit()
        with store.reading() as session:
            assert session.connection().exec_driver_sql("SELECT author FROM verdicts").scalar() == "later"
        writer.close()


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap, which shows a folder read-only to root too")
@pytest.mark.parametrize("being_written", [False, True])
def test_it_reads_from_a_folder_that_may_not_be_written(site, being_written):
    full(site)
    if not being_written:
        site.store.close()
    assert (site.folder / "grader.db-wal").exists() == being_written
    prefix = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--die-with-parent"]
    with Server(site.folder / "grader.db", prefix=prefix) as server:
        assert "author" in server.ask("/")[2]
        site.save("new", text="n = 1\n")
        assert server.ask("verdicts/8.html")[0] == 200


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no such database"),
        (lambda path: path.write_text("not a database at all"), "not an SQLite database"),
        (lambda path: sqlite3.connect(path).execute("create table x (y)").connection.close(), "another version"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, make, message):
    make(tmp_path / "x.db")
    done = command("--db", str(tmp_path / "x.db"))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# ------------------------------------------------------------------------------------------------ the command


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_once_though_somebody_follows(site, number):
    site.save()
    server = Server(site.folder / "grader.db")
    events = Events(server)
    events.next("runs")
    status, took = server.end(number)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 128 + signal.SIGTERM}[number]
    assert took < 10
    assert "Traceback" not in "".join(server.said)
    with pytest.raises(ProcessLookupError):
        os.killpg(server.process.pid, 0)


def test_it_listens_on_loopback_and_warns_elsewhere(site):
    site.save()
    with Server(site.folder / "grader.db") as server:
        assert "http://127.0.0.1:" in server.said[0]
    assert len(server.said) == 1
    with Server(site.folder / "grader.db", "--host", "0.0.0.0", "--allow-host", "grader.example") as server:
        server.address = server.address.replace("0.0.0.0", "127.0.0.1")
        assert server.ask("/", Host="grader.example")[0] == 200
        assert server.ask("/", Host="other.example")[0] == 421
    assert "warning: listening on 0.0.0.0" in server.said[1]


def test_a_port_in_use_is_said_in_one_line(site):
    site.save()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("--db", str(site.folder / "grader.db"), "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot listen there (Address already in use)" in done.stderr


def test_without_the_extra_it_says_how_to_get_it(tmp_path):
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('no', name='fastapi')")
    done = command(PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert (
        done.stderr
        == "grader: serving needs fastapi; install it with `pip install '.[serve]'` in the grader's checkout\n"
    )


def test_a_page_that_is_no_number_is_refused_in_a_page_and_in_json(shared):
    status, _, text = shared.ask("verdicts.html?page=x")
    assert status == 422
    assert 'href="index.html"' in text
    assert "query.page: Input should be a valid integer" in text
    status, _, text = shared.ask("api/verdicts?limit=x")
    assert status == 422
    assert json.loads(text)["detail"].startswith("query.limit: Input should be")
