"""The server as programs meet it: a process of its own, real requests, a database that others write to."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from threading import Thread

import pytest

from db import Store
from db.read_only import open_read_only
from grader.errors import StoreError
from grader.models import Status
from grader.report.site import names
from grader.report.site.pages import STATIC
from grader.serve.snapshot import Snapshots
from tests.report.test_site import HOSTILE, Site, full, hostile

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token that tests know"


class Server:
    """`grader serve` on a free port. A context manager that asks it to end, and waits for it."""

    def __init__(self, database, *arguments, prefix=(), **environment):
        command = [
            *prefix,
            sys.executable,
            "-m",
            "grader.cli",
            "serve",
            "--db",
            str(database),
            "--port",
            "0",
            *arguments,
        ]
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            start_new_session=True,
        )
        self.said = []
        first = self.process.stderr.readline()
        assert "http://" in first, first + self.process.stderr.read()
        self.said.append(first)
        self.address = re.search(r"http://\S+/", first)[0]
        self._reader = Thread(target=lambda: self.said.extend(self.process.stderr))
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)

    def end(self, number):
        """Send the signal; returns the exit status and how long it took."""
        started = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(30)
        self._reader.join()
        self.process.stderr.close()
        return status, time.monotonic() - started

    def ask(self, path, *, data=None, **headers):
        """Status, headers and text."""
        request = urllib.request.Request(self.address + path.lstrip("/"), data=data, headers=headers)
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def json(self, path):
        """An answer of the API that has to succeed."""
        status, _, text = self.ask(path)
        assert status == 200, text
        return json.loads(text)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Events:
    """Reads server-sent events one by one."""

    def __init__(self, server, query="", **headers):
        self._answer = urllib.request.urlopen(
            urllib.request.Request(f"{server.address}events{query}", headers=headers), timeout=20
        )

    def next(self, kind):
        """The next event of a kind: its id and its data."""
        found = {}
        for line in self._answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                found[name] = value
            elif found.get("event") == kind:
                return found.get("id"), json.loads(found["data"])
            else:
                found = {}
        raise AssertionError("the server closed the connection")

    def close(self):
        self._answer.close()


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


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.store.close()


# ------------------------------------------------------------------------------------------------------- pages


def test_it_serves_the_very_pages_of_the_static_site(shared):
    pages = shared.site.write()
    around = re.compile(r'<a href="[^"]*live\.html">Live</a>\n|<p><a href="[^"]*compare/\d+\.html">.*?</p>\n')
    for name, page in pages.items():
        status, _, text = shared.ask(name)
        assert status == 200, name
        assert around.sub("", text).split() == page.path.read_text().split(), name


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
    snapshots = Snapshots(site.store, site.folder / "grader.db", STATIC)
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


def test_verdicts_that_were_deleted_are_gone(site):
    full(site)
    snapshots = Snapshots(site.store, site.folder / "grader.db", STATIC)
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
    assert {"id": "add", "submissions": 3, "right_forward": 2, "correct": 2} in shared.json("api/problems")
    assert [shared.ask(f"api/verdicts/{one}")[0] for one in ("99", "0", "x", 2**70)] == [404, 422, 422, 422]


def test_the_schema_names_every_address_and_what_it_answers(shared):
    schema = shared.json("api/openapi.json")
    assert set(schema["paths"]) == {
        f"/api/{one}" for one in ("verdicts", "verdicts/{verdict_id}", "leaderboard", "problems")
    }
    assert {"Verdict", "Leaderboard", "PhaseTiming"} <= set(schema["components"]["schemas"])


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


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "grader.cli", "serve", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


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
    assert done.stderr == "grader: serving needs fastapi; pip install 'kernel-grader[serve]' brings it\n"


# ------------------------------------------------------------------------------------------------- submissions

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.relu(x * self.weight)


def get_inputs():
    return [torch.rand(64, 8)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def taking(tmp_path_factory):
    """A server that takes submissions, for a problem that is graded in seconds."""
    folder = tmp_path_factory.mktemp("submit")
    (folder / "problems").mkdir()
    (folder / "problems" / "tiny.py").write_text(PROBLEM)
    arguments = ("--submit", "--problems", str(folder / "problems"))
    with Server(folder / "grader.db", *arguments, GRADER_TOKEN=TOKEN, XDG_CACHE_HOME=str(folder)) as server:
        server.database = folder / "grader.db"
        yield server
    assert TOKEN not in "".join(server.said)


def form(**fields):
    given = {"token": TOKEN, "author": "ann", "problem": "tiny", "source": "x = 1", "quick": "yes", **fields}
    return urllib.parse.urlencode(given).encode()


def test_a_submission_with_a_wrong_token_is_refused_and_nothing_is_graded(taking):
    for token in ("", "wrong", TOKEN + "x", "é" * 20):
        status, _, text = taking.ask("submit.html", data=form(token=token, source="x = '<script>'"))
        assert status == 403
        assert "The token is wrong" in text
        assert "x = &#39;&lt;script&gt;&#39;" in text
    program = json.dumps({"author": "ann", "problem": "tiny", "source": "x"}).encode()
    kind = {"Content-Type": "application/json"}
    assert taking.ask("api/submissions", data=program, **kind)[0] == 403
    assert taking.ask("api/submissions", data=program, Authorization="Bearer x", **kind)[0] == 403
    with Store.open(taking.database) as store, store.reading() as session:
        assert session.connection().exec_driver_sql("SELECT count(*) FROM runs").scalar() == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_on_another_site_is_refused_even_with_the_token(taking, headers):
    assert taking.ask("submit.html", data=form(), **headers)[0] == 403


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"author": "../../etc"}, 422, "letters, digits"),
        ({"author": ".hidden"}, 422, "letters, digits"),
        ({"author": "a" * 65}, 422, "letters, digits"),
        ({"label": "a/b"}, 422, "letters, digits"),
        ({"problem": "../tiny"}, 422, "no such problem"),
        ({"source": "  \n "}, 422, "empty"),
        ({"source": "x" * (1 << 20) + "x"}, 413, "1048576 bytes at most"),
    ],
)
def test_what_cannot_be_graded_is_refused(taking, fields, status, message):
    answered, _, text = taking.ask("submit.html", data=form(**fields))
    assert answered == status
    assert message in text


def raw(server, *pieces):
    """The status line of the answer to what is sent, which a server may refuse to read to its end."""
    host, port = urllib.parse.urlsplit(server.address).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        with contextlib.suppress(OSError):
            for piece in pieces:
                connection.sendall(piece.replace(b"HOST", host.encode()))
        return connection.recv(4096).partition(b"\r\n")[0].decode()


def test_a_body_is_limited_with_and_without_a_length(taking):
    head = b"POST /submit.html HTTP/1.1\r\nHost: HOST\r\n"
    assert " 413 " in raw(taking, head + b"Content-Length: 99999999\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    # Just over the limit: after more than that the connection is closed before the answer is read.
    assert " 413 " in raw(taking, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 50)


@pytest.mark.slow
def test_a_program_submits_and_gets_its_verdict(taking):
    source = PROBLEM.replace("class Model(", "class ModelNew(")
    program = json.dumps({"author": "ann", "problem": "tiny", "label": "v1", "source": source, "quick": True}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    status, _, text = taking.ask("api/submissions", data=program, **headers)
    assert status == 202
    job = json.loads(text)
    deadline = time.monotonic() + 240
    while job["state"] in ("waiting", "grading") and time.monotonic() < deadline:
        time.sleep(0.5)
        job = taking.json(f"api/submissions/{job['id']}")
    assert job["state"] == "done", job
    verdict = taking.json(f"api/verdicts/{job['verdict_id']}")
    assert (verdict["status"], verdict["submission"]) == ("correct", "ann/tiny__v1")
    status, headers, _ = taking.ask(f"submitted/{job['id']}.html")
    assert (status, headers["Location"]) == (303, f"/verdicts/{job['verdict_id']}.html")


@pytest.mark.slow
def test_ending_the_server_ends_the_grading_in_progress(tmp_path):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "tiny.py").write_text(PROBLEM)
    server = Server(
        tmp_path / "g.db",
        "--submit",
        "--problems",
        str(tmp_path / "problems"),
        GRADER_TOKEN=TOKEN,
        TMPDIR=str(tmp_path),
    )
    slow = "import time\ntime.sleep(500)\n" + PROBLEM.replace("class Model(", "class ModelNew(")
    assert server.ask("submit.html", data=form(source=slow))[0] == 303
    deadline = time.monotonic() + 60
    while not processes(str(tmp_path / "grader-submitted")) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(8)
    assert processes(str(tmp_path / "grader-submitted"))
    status, took = server.end(signal.SIGINT)
    assert status == 130
    assert took < 25
    assert processes(str(tmp_path)) == []
    assert not list(tmp_path.glob("grader-submitted*"))


def processes(text):
    """Whose command line has it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(path.parent.name) != os.getpid():
            found.append(line)
    return found


def test_a_short_token_is_refused(tmp_path):
    done = command("--submit", "--db", str(tmp_path / "x.db"), GRADER_TOKEN="short")
    assert done.returncode == 2
    assert "GRADER_TOKEN has 5 characters" in done.stderr


def test_without_a_token_one_is_made_and_printed_once(tmp_path):
    with Server(tmp_path / "x.db", "--submit") as server:
        assert server.ask("submit.html")[0] == 200
    assert len([one for one in server.said if re.fullmatch(r"token for submissions: [\w-]{32}\n", one)]) == 1
