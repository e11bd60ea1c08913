"""A server and its clients: each verdict once, also if the server is killed meanwhile, and what is refused."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from db import Store
from grader import AsyncClient, Client, GraderError, Status, UserError
from grader.errors import NotGraded
from grader.serve import batches as route
from tests import samples
from tests.serve.serving import CHEAP, ROOT, Server

TOKEN = "a token that tests know"


@pytest.fixture
def serving(tmp_path):
    """Starts a server that grades at no cost, on one database."""
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "scale.py").write_text(samples.PROBLEM_SOURCE)
    (tmp_path / "tokens").write_text("# of authors\nann anns-own-secret-token\nbob bobs-own-secret-token\n")
    started = []

    def start(*options, port="0"):
        known = ("--submit", "--problems", str(tmp_path / "problems"), "--tokens", str(tmp_path / "tokens"))
        arguments = (*known, "--workers", "2", "--device", "cpu", *options)
        server = Server(tmp_path / "g.db", *arguments, program=("-c", CHEAP), port=port, GRADER_TOKEN=TOKEN)
        started.append(server)
        return server

    yield start
    for server in started:
        server.end(signal.SIGTERM)


def work(author, number, *commands, **fields):
    lines = [f"# {author} {number}", *(f"# {command}" for command in commands), samples.SUBMISSION_SOURCE]
    return {"problem": "scale", "source": "\n".join(lines), "author": author, "label": f"v{number}", **fields}


def stored(tmp_path, query="select author || ' ' || label from verdicts"):
    with Store.open(tmp_path / "g.db") as store, store.reading() as session:
        return Counter(one for (one,) in session.connection().exec_driver_sql(query))


def test_many_clients_at_once_get_each_verdict_once(serving, tmp_path):
    clients, each = 16, 6
    server = serving()

    def one(number):
        with Client(server.address, TOKEN) as client:
            return Counter(
                f"{v.author} {v.label}" for v in client.grade_many(work(f"a{number}", n) for n in range(each))
            )

    with ThreadPoolExecutor(clients) as threads:
        found = list(threads.map(one, range(clients)))
    assert found == [Counter(f"a{number} v{n}" for n in range(each)) for number in range(clients)]
    assert stored(tmp_path) == sum(found, Counter())


def test_the_methods_of_a_grader(serving):
    server = serving()
    with Client(server.address, TOKEN, author="cid") as client:
        verdict = client.grade(source="# status: wrong_output\n", problem="scale", label="v1")
        assert (verdict.status, verdict.author, verdict.label) == (Status.WRONG_OUTPUT, "cid", "v1")
        assert client.grade(source="# status: wrong_output\n", problem="scale", label="v1") == verdict  # known
        pairs = [(samples.problem(), samples.submission(author="ann")), ("scale", "# status: correct\n")]
        assert sorted(one.author for one in client.grade_many(pairs)) == ["ann", "cid"]
        with pytest.raises(UserError, match="line 1: unknown problem 'nothing'"):
            client.grade(source="x", problem="nothing")


def test_an_event_loop_grades_too(serving):
    server = serving()

    async def main():
        async with AsyncClient(server.address, TOKEN) as client:
            verdict = await client.grade(source="# status: correct\n", problem="scale")
            batch = await client.submit([work("ann", 1)])
            found = [one.author async for one in client.grade_many([work("ann", 1), work("bob", 2)])]
            lines = [line.verdict.author async for line in client.lines(batch.id)]
            return verdict.status, sorted(found), lines, (await client.state(batch.id)).done

    assert asyncio.run(main()) == ("correct", ["ann", "bob"], ["ann"], True)


def test_a_server_that_is_killed_goes_on_with_what_was_queued(serving, tmp_path):
    first = serving()
    port = first.address.rstrip("/").rpartition(":")[2]
    found, done = Counter(), threading.Event()

    def grade():
        with Client(first.address, TOKEN) as client:
            found.update(one.label for one in client.grade_many(work("ann", n, "sleep: 0.2") for n in range(12)))
        done.set()

    threading.Thread(target=grade, daemon=True).start()
    while len(found) < 4:
        time.sleep(0.05)
    first.end(signal.SIGKILL)
    second = serving(port=port)
    assert done.wait(60), second.said
    assert found == Counter(f"v{n}" for n in range(12))
    assert stored(tmp_path, "select label from verdicts") == found


def test_a_repeated_key_returns_the_same_batch(serving):
    server = serving()
    with Client(server.address, TOKEN) as client:
        first = client.submit([work("ann", 1)], key="mine")
        assert client.submit([work("ann", 1)], key="mine").id == first.id
        assert client.submit([work("ann", 1)], key="other").id != first.id
        with pytest.raises(UserError, match="this key was sent before with other lines"):
            client.submit([work("ann", 2)], key="mine")


def test_an_author_s_token_is_for_the_author_alone(serving):
    server = serving()
    ann, bob, anyone = (
        Client(server.address, token) for token in ("anns-own-secret-token", "bobs-own-secret-token", TOKEN)
    )
    unnamed = {key: value for key, value in work("ann", 1).items() if key != "author"}
    batch = ann.submit([unnamed, work("bob", 2)])
    lines = {line.line: line for line in ann.lines(batch.id)}
    assert lines[1].verdict.author == "ann"
    assert lines[2].message == "this token is for the author 'ann', not 'bob'"
    for refused in (bob.state, bob.cancel, lambda batch: list(bob.lines(batch))):
        with pytest.raises(UserError, match="There is no such batch of this token"):
            refused(batch.id)
    assert anyone.state(batch.id).statuses == {"correct": 1}
    with pytest.raises(UserError, match="With this token the priority is from -100 to 0"):
        ann.submit([unnamed], priority=1)
    for wrong in ("", "x", "anns-own-secret-toke"):
        with pytest.raises(UserError, match="The token is wrong"):
            Client(server.address, wrong).submit([work("ann", 1)])


def test_a_batch_is_cancelled_and_the_others_are_not(serving):
    server = serving()
    with Client(server.address, TOKEN) as client:
        batch = client.submit(work("ann", n, "wait for: the end of time") for n in range(5))
        other = client.submit([work("bob", 1)])
        client.cancel(batch.id)
        assert {line.message for line in client.lines(batch.id)} == {"cancelled"}
        assert [line.verdict.author for line in client.lines(other.id)] == ["bob"]
        assert client.state(batch.id).without_verdict == 5
        threading.Thread(target=cancel_after, args=(server, other.id)).start()
        with pytest.raises(NotGraded, match="cancelled"):
            client.grade(**work("cid", 1, "wait for: the end of time"))


def cancel_after(server, batch_id):
    """Cancel the first batch that comes after this one."""
    while (found := newest(server)) == batch_id:
        time.sleep(0.05)
    Client(server.address, TOKEN).cancel(found)


def test_what_takes_too_long_does_not_end_the_others(serving, caplog):
    server = serving("--limit", "1")
    with Client(server.address, TOKEN) as client:
        sent = [work("ann", 1, "wait for: the end of time"), work("bob", 1), work("cid", 1)]
        assert sorted(verdict.author for verdict in client.grade_many(sent)) == ["bob", "cid"]
        with pytest.raises(NotGraded, match="stopped after 1 s, which is the limit for one grading here"):
            client.grade(**sent[0])
    assert "line 1 has no verdict: stopped after 1 s" in caplog.text


def newest(server):
    with Store.open(server.database) as store, store.reading() as session:
        query = "select batch_id from batch_lines order by id desc limit 1"
        return session.connection().exec_driver_sql(query).scalar()


def test_a_flood_does_not_keep_another_author_waiting_and_a_priority_goes_first(serving, tmp_path):
    server = serving("--workers", "1")  # verdicts end in the order in which they are given out
    all_are_queued = tmp_path / "all are queued"
    with Client(server.address, TOKEN) as client:
        batches = [
            client.submit(work("ann", n, f"wait for: {all_are_queued}") for n in range(60)),
            client.submit(work("bob", n) for n in range(5)),
            client.submit((work("cid", n) for n in range(5)), priority=1),
        ]
        all_are_queued.touch()
        assert [len(list(client.lines(batch.id))) for batch in batches] == [60, 5, 5]
    order = [one.partition(" ")[2] for one in stored(tmp_path, "select id || ' ' || author from verdicts order by id")]
    assert "cid" not in order[15:]  # a few are taken ahead of what is queued later
    assert order[25:] == 45 * ["ann"]


def raw(server, data, token=TOKEN, path="api/batches", **headers):
    return server.ask(path, data=data, Authorization=f"Bearer {token}", **headers)


def head(server, length):
    """The status line of the answer to the headers of a long body."""
    host, port = urllib.parse.urlsplit(server.address).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        fields = (f"Host: {host}", f"Authorization: Bearer {TOKEN}", f"Content-Length: {length}")
        connection.sendall("\r\n".join(["POST /api/batches HTTP/1.1", *fields, "", ""]).encode())
        return connection.recv(4096).partition(b"\r\n")[0].decode()


def test_what_is_too_much_is_refused_before_it_is_read(serving):
    server = serving("--rate", "12")
    line = json.dumps(work("ann", 1)).encode() + b"\n"
    assert " 413 " in head(server, route.MOST_BYTES + 1)
    with pytest.raises(UserError, match="send it in parts"):
        Client(server.address, TOKEN).submit([work("ann", 1, "x" * route.MOST_BYTES)])
    status, _, text = raw(server, b"{}\n" * 10_001)
    assert (status, json.loads(text)["detail"]) == (413, "A batch has 1 to 10000 lines, this one 10001.")
    assert raw(server, b"\n")[0] == 422
    assert raw(server, line, **{"Idempotency-Key": "x" * 201})[0] == 422
    assert raw(server, line, path="api/batches?priority=101")[0] == 422
    answers = [raw(server, line) for _ in range(12)]
    late = [answer for answer in answers if answer[0] == 429]
    assert 3 <= len(late) <= 5
    assert int(late[0][1]["Retry-After"]) >= 1
    assert raw(server, line, token="anns-own-secret-token")[0] == 202  # has a rate of its own


def test_bad_lines_end_with_their_fault_and_the_others_are_graded(serving):
    server = serving("--strict-fp32")
    good, half = (json.dumps(work("ann", 1, **fields)).encode() for fields in ({}, {"precision": "bf16"}))
    status, _, text = raw(server, b"\n".join([b"nonsense", good, b'{"problem": "scale"}', b"[" * 100_000, half]))
    assert status == 202
    with Client(server.address, TOKEN) as client:
        lines = {line.line: line for line in client.lines(json.loads(text)["id"])}
    assert lines[2].verdict.status is Status.CORRECT
    assert "invalid JSON" in lines[1].message
    assert lines[3].message == "missing field 'source'"
    assert "invalid JSON" in lines[4].message
    assert lines[5].message == "--strict-fp32 is for --precision fp32; with bf16 leave it out"


def figures(server):
    lines = server.ask("metrics")[2].splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_what_a_server_does_is_shown_by_metrics_by_the_live_page_and_by_the_command(serving, tmp_path):
    server = serving()
    assert figures(server)["grader_lines_waiting"] == 0
    with Client(server.address, TOKEN) as client:
        # A rate is that of two verdicts, which end before the others take both workers.
        assert len(list(client.grade_many([work("bob", 1), work("bob", 2)]))) == 2
        batch = client.submit(work("ann", n, "wait for: the end of time") for n in range(12))
        until = time.monotonic() + 30
        ready, correct = 'grader_workers{run="1",state="ready"}', 'device_name="a CPU",status="correct"'
        while not (
            (seen := figures(server)).get(ready) == seen.get(f"grader_verdicts_total{{{correct}}}") == 2
            and 'grader_run_rate{run="1"}' in seen
        ):
            assert time.monotonic() < until, seen
            time.sleep(0.3)
        live = server.ask("live.html")[2]
        said = pool_status(tmp_path, "--format", "table").stdout
        header, row = (line.split("\t") for line in pool_status(tmp_path).stdout.splitlines())
        as_json = json.loads(pool_status(tmp_path, "--json").stdout)
        client.cancel(batch.id)
    assert seen["grader_lines_waiting"] + seen["grader_lines_under_way"] >= 4
    assert seen["grader_fault"] == 0
    for text in (live, said):
        assert "CPU worker 1: ready" in text
        assert "2 workers" in text
        assert re.search(r"\d+ waiting, ", text)
        assert "left" in text
    assert (as_json["run"], as_json["here"], len(as_json["work"]["workers"])) == (1, True, 2)
    assert dict(zip(header, row, strict=True))["workers"].startswith("CPU worker 1: ready, ")


def pool_status(tmp_path, *arguments):
    command = [sys.executable, "-m", "grader", "pool", "status", "--db", str(tmp_path / "g.db"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)


def test_without_a_grader_the_command_says_so(tmp_path):
    Store.open(tmp_path / "g.db").close()
    asked = pool_status(tmp_path)
    assert asked.stdout.startswith("run\tprocess\tpriority\t")
    assert asked.stdout.count("\n") == 1
    assert asked.stderr == "no grader is at work with this database\n"


def test_a_stream_goes_on_where_its_reader_was(serving):
    server = serving()
    with Client(server.address, TOKEN) as client:
        batch = client.submit(work("ann", n) for n in range(6))
        all_lines = list(client.lines(batch.id))
        assert [line.ended for line in all_lines] == [1, 2, 3, 4, 5, 6]
        assert list(client.lines(batch.id, after=4)) == all_lines[4:]
    request = urllib.request.Request(
        f"{server.address}api/batches/{batch.id}/verdicts", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert len(answer.read().splitlines()) == 6


def test_a_server_that_is_away_is_named():
    with Client("http://127.0.0.1:9", TOKEN, patience_seconds=0.3) as client, pytest.raises(GraderError) as raised:
        client.grade(source="x", problem="scale")
    assert "http://127.0.0.1:9 does not answer" in str(raised.value)


@contextmanager
def answering(answer):
    """The address of a server that calls `answer(handler)`, and the paths that it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("after", ["", "soon", "0.1", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 99 Oct 2015 07:28:00 GMT"])
def test_a_busy_server_is_asked_again_whatever_its_header_retry_after_is(after):
    def busy(handler):
        handler.send_response(503)
        handler.send_header("Retry-After", after)
        handler.end_headers()
        handler.wfile.write(b'{"detail": "busy"}')

    with answering(busy) as (address, asked), pytest.raises(GraderError, match=r"^busy; tried for 0\.3 s$"):
        Client(address, TOKEN, patience_seconds=0.3).state("a")
    assert len(asked) == 2


@pytest.mark.parametrize("sent", [b"", b'{"line": 1, "en'])
def test_a_stream_that_always_ends_early_is_asked_for_a_few_times(sent):
    def early(handler):
        handler.send_response(200)
        handler.end_headers()
        counts = {"lines": 1, "ended": 0, "without_verdict": 0, "statuses": {}}
        state = {"id": "a", "owner": "x", "priority": 0, "created_at": "", **counts}
        handler.wfile.write(sent if "/verdicts" in handler.path else json.dumps(state).encode())

    with answering(early) as (address, asked), pytest.raises(GraderError, match="ends the stream of batch a"):
        list(Client(address, TOKEN, patience_seconds=0.3).lines("a"))
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ann\n", "line 1: write AUTHOR TOKEN"),
        ("ann short\n", "line 1: the token has 5 characters; use at least 16"),
        ("../x a-token-that-is-long-enough\n", "line 1: author '../x'"),
        (
            "ann a-token-that-is-long-enough\nbob a-token-that-is-long-enough\n",
            "line 2: bob or its token is there twice",
        ),
    ],
)
def test_a_file_of_tokens_that_cannot_be_used_is_one_line(tmp_path, text, message):
    from grader.serve.tokens import read_tokens

    (tmp_path / "tokens").write_text(text)
    with pytest.raises(UserError) as raised:
        read_tokens(tmp_path / "tokens")
    assert message in str(raised.value)


def test_a_client_needs_no_torch():
    code = "import sys; from grader import Client; sys.exit('torch' in sys.modules or 'sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_profile_is_made_and_stored_and_what_is_refused(serving, tmp_path):
    with serving() as server, Client(server.address, "anns-own-secret-token") as client:
        assert client.profile(work("ann", 1)).submission == "ann/scale__v1"
        loops = AsyncClient(server.address, "anns-own-secret-token")
        assert asyncio.run(loops.profile(work("ann", 2))).problem == "scale"
        with pytest.raises(UserError, match="this token is for the author 'ann', not 'bob'"):
            client.profile(work("bob", 1))
        with pytest.raises(UserError, match="it ended 2 processes"):
            client.profile(work("ann", 3, "die"))
        with pytest.raises(UserError, match="token is wrong"):
            Client(server.address, "none").profile(work("ann", 1))
        assert client.grade(source=work("ann", 4)["source"], problem="scale").status == "correct"
    assert stored(tmp_path, "select source_hash from profiles").total() == 2
