"""Submissions to a server: who may, what is refused, and what becomes of those that are taken."""

import contextlib
import json
import re
import signal
import socket
import time
import urllib.parse
from pathlib import Path

import pytest

from db import Store
from tests.serve.serving import CHEAP, Server, command

TOKEN = "a token that tests know"

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
    arguments = ("--submit", "--problems", str(folder / "problems"), "--quick", "--workers", "1", "--device", "cpu")
    with Server(folder / "grader.db", *arguments, GRADER_TOKEN=TOKEN, XDG_CACHE_HOME=str(folder)) as server:
        yield server
    assert TOKEN not in "".join(server.said)


def form(**fields):
    given = {"token": TOKEN, "author": "ann", "problem": "tiny", "source": "x = 1", **fields}
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
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_on_another_site_is_refused_even_with_the_token(taking, headers):
    assert taking.ask("submit.html", data=form(), **headers)[0] == 403


def test_a_form_with_too_many_fields_is_refused(taking):
    answered, _, text = taking.ask("submit.html", data=form(**{f"more{number}": "1" for number in range(20)}))
    assert answered == 422
    assert "The form has too many fields" in text


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"author": "../../etc"}, 422, "letters, digits"),
        ({"author": ".hidden"}, 422, "letters, digits"),
        ({"author": "a" * 65}, 422, "letters, digits"),
        ({"label": "a/b"}, 422, "letters, digits"),
        ({"problem": "../tiny"}, 422, "no such problem"),
        ({"source": "  \n "}, 422, "empty"),
        ({"source": "x" * (1 << 20) + "x"}, 413, "at most 1048576 bytes"),
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
    program = head.replace(b"/submit.html", b"/api/submissions").replace(b"x-www-form-urlencoded", b"json")
    assert " 413 " in raw(taking, program + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 50)


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


@pytest.mark.alone
@pytest.mark.slow
def test_ending_the_server_ends_the_grading_in_progress(tmp_path):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "tiny.py").write_text(PROBLEM)
    server = Server(
        tmp_path / "g.db",
        "--submit",
        "--problems",
        str(tmp_path / "problems"),
        "--workers",
        "1",
        GRADER_TOKEN=TOKEN,
        TMPDIR=str(tmp_path),
    )
    slow = "import time\ntime.sleep(500)\n" + PROBLEM.replace("class Model(", "class ModelNew(")
    assert server.ask("submit.html", data=form(source=slow))[0] == 303
    before, started, deadline = [], [], time.monotonic() + 60
    while (len(started) < 3 or started != before) and time.monotonic() < deadline:
        time.sleep(2)  # the submission sleeps, so that what starts and ends meanwhile prepares its grading
        before, started = started, descendants(server.process.pid)
    assert len(started) >= 3
    status, took = server.end(signal.SIGINT)
    assert status == 130
    assert took < 25
    assert [process for process in started if Path(f"/proc/{process}").exists()] == []


def descendants(process):
    """The ids of all processes that it started, and of theirs."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            children = [int(child) for child in (task / "children").read_text().split()]
            found += [*children, *(one for child in children for one in descendants(child))]
    return found


def test_a_short_token_is_refused(tmp_path):
    done = command("--submit", "--db", str(tmp_path / "x.db"), GRADER_TOKEN="short")
    assert done.returncode == 2
    assert "GRADER_TOKEN has 5 characters" in done.stderr


def test_without_a_token_one_is_made_and_printed_once(tmp_path):
    with Server(tmp_path / "x.db", "--submit") as server:
        assert server.ask("submit.html")[0] == 200
    assert len([one for one in server.said if re.fullmatch(r"token for submissions: [\w-]{32}\n", one)]) == 1


@pytest.mark.slow
def test_a_submission_does_not_hold_the_queue_for_ever(tmp_path):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "tiny.py").write_text(PROBLEM)
    arguments = ("--submit", "--problems", str(tmp_path / "problems"), "--limit", "4", "--quick", "--workers", "1")
    slow = "import time\ntime.sleep(500)\n" + PROBLEM.replace("class Model(", "class ModelNew(")
    with Server(tmp_path / "g.db", *arguments, GRADER_TOKEN=TOKEN, TMPDIR=str(tmp_path)) as server:
        jobs = [sent(server, problem="tiny", source=source) for source in (slow, "x = 1")]
        first, second = (finished(server, job) for job in jobs)
        started = descendants(server.process.pid)
    assert first["state"] == "failed"
    assert first["message"] == "stopped after 4 s, which is the limit for one grading here"
    assert second["state"] in ("done", "failed")
    assert len(started) >= 1
    assert [process for process in started if Path(f"/proc/{process}").exists()] == []


def test_a_problem_whose_id_has_a_slash_is_graded_for_its_author(tmp_path):
    for level in ("level1", "level2"):
        (tmp_path / "problems" / level).mkdir(parents=True)
        (tmp_path / "problems" / level / "tiny.py").write_text(PROBLEM)
    arguments = ("--submit", "--problems", str(tmp_path / "problems"), "--quick", "--workers", "1")
    with Server(tmp_path / "g.db", *arguments, program=("-c", CHEAP), GRADER_TOKEN=TOKEN) as server:
        jobs = [
            finished(server, sent(server, author=author, problem="level1/tiny", label="v1", source="x = 1"))
            for author in ("ann", "level1")
        ]
    assert [job["state"] for job in jobs] == ["done", "done"], jobs
    with Store.open(tmp_path / "g.db") as store:
        found = [store.get(job["verdict_id"]).verdict for job in jobs]
    assert [(one.author, one.problem, one.label) for one in found] == [
        ("ann", "level1/tiny", "v1"),
        ("level1", "level1/tiny", "v1"),
    ]


def sent(server, **fields):
    program = json.dumps({"author": "ann", "quick": True, **fields}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    status, _, text = server.ask("api/submissions", data=program, **headers)
    assert status == 202, text
    return json.loads(text)


def finished(server, job):
    deadline = time.monotonic() + 120
    while job["state"] in ("waiting", "grading") and time.monotonic() < deadline:
        time.sleep(0.5)
        job = server.json(f"api/submissions/{job['id']}")
    return job
