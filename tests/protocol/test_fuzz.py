"""For any bytes of a worker the referee returns evidence that fits the job, or a verdict, in bounded time."""

import contextlib
import json
import os
import resource
import socket
import struct
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader import protocol as p
from grader.executor import WorkerClient, WorkerLost, WorkerOptions
from grader.sandbox import Exit, Limits, Output
from grader.verdict.models import Status

FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SECONDS = 5.0
MEMORY_BYTES = 256 << 20


class NoProcess:
    """In place of a sandboxed process; the test plays its part on the socket."""

    pid = 0

    def kill(self):
        pass

    def wait(self, timeout_seconds=None):
        return Exit(
            returncode=0, signal=None, timed_out=False, out_of_memory=False, host_out_of_memory=False, wall_seconds=0.0
        )

    def output(self):
        return Output(text="", total_bytes=0)


class NoSandbox:
    """Gives the test the worker's end of the control socket."""

    def spawn(self, argv, *, pass_fds, **_):
        self.socket = socket.socket(fileno=os.dup(pass_fds[0]))
        return NoProcess()


LIMITS = Limits(
    wall_seconds=60,
    memory_bytes=1 << 30,
    scratch_bytes=1 << 20,
    shared_memory_bytes=1 << 20,
    process_count=8,
    file_bytes=1 << 20,
    output_bytes=1 << 10,
)


@contextlib.contextmanager
def worker():
    """A ready WorkerClient, and the other end of its socket."""
    sandbox = NoSandbox()
    remote = WorkerClient(sandbox, WorkerOptions(limits=LIMITS))
    sandbox.socket.sendall(p.encode(p.Evidence(id=0)))
    with remote, sandbox.socket:
        remote.wait_ready()
        yield remote, sandbox.socket


@contextlib.contextmanager
def bounded():
    """Fails if the block takes too long or too much memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MEMORY_BYTES


def answer(sock, make):
    """Read one job, send `make(job)`, and close the connection."""

    def play():
        with contextlib.suppress(OSError):
            (length,) = p.HEADER.unpack(sock.recv(p.HEADER.size, socket.MSG_WAITALL))
            job = json.loads(sock.recv(length, socket.MSG_WAITALL))
            sock.sendall(make(job))
            sock.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=play)
    thread.start()
    return thread


def ask(steps, make):
    """Return the evidence of an answer, or the status that it leads to."""
    with worker() as (remote, sock), bounded():
        thread = answer(sock, make)
        try:
            return remote.run(steps, 2.0)
        except WorkerLost as lost:
            return lost.status
        finally:
            sock.close()
            thread.join()


def framed(document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack("<I", len(body)) + body


def evidence(job, **fields):
    return framed({"id": job["id"], "results": [], "failure": None, "peak_device_bytes": 0, **fields})


names = st.sampled_from(["output", "w", "", "output:a:output", "grad:a:w", "\ud800", "\x1b[2J", "x" * 600])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | names
infos = st.fixed_dictionaries(
    {"name": names},
    optional={
        "kind": st.sampled_from(["tensor", "none", "other", "magic"]),
        "shape": st.none() | st.lists(st.integers(-1, 1 << 60), max_size=20),
        "dtype": scalars,
        "device": scalars,
        "requires_grad": scalars,
    },
)
results = st.fixed_dictionaries(
    {
        "did": st.sampled_from([kind.model_fields["did"].default for kind in p.Result.kinds]),
    },
    optional={
        "tensors": st.lists(infos, max_size=4),
        "refused": st.lists(infos, max_size=4),
        "parameters": st.lists(infos, max_size=4),
        "buffers": st.lists(infos, max_size=4),
        "ms": scalars,
        "seconds": scalars,
        "builds": st.lists(scalars, max_size=2),
        "operands": st.lists(scalars, max_size=2),
        "breaches": st.lists(st.fixed_dictionaries({"name": names, "side": names, "nbytes": scalars}), max_size=2),
        "kernels": st.lists(st.fixed_dictionaries({"name": names, "calls": scalars, "ms": scalars}), max_size=70),
        "trouble": names,
        "surprise": scalars,
    },
)
failures = st.none() | st.fixed_dictionaries(
    {
        "step": st.integers(-1, 5),
        "kind": st.sampled_from(["exception", "build", "out_of_memory", "missing_class", "import", "magic"]),
        "type_name": names,
        "text": names,
    },
    optional={"builds": st.lists(st.just({"name": "x", "ok": False, "seconds": 1.0, "cached": False}), max_size=2)},
)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4))


@FUZZ
@given(st.binary(max_size=4096))
def test_any_bytes_decode_or_are_malformed(body):
    with contextlib.suppress(p.MalformedMessage):
        assert isinstance(p.decode_evidence(body), p.Evidence)


@FUZZ
@given(trees)
def test_any_json_decodes_or_is_malformed(document):
    with contextlib.suppress(p.MalformedMessage):
        assert isinstance(p.decode_evidence(json.dumps(document).encode("utf-8", "surrogatepass")), p.Evidence)


DEEP = 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP + b"]" * DEEP,
        b'{"id":' * DEEP,
        b'{"id": ' + b"9" * 1_000_000 + b"}",
        b'{"id": 1e999}',
        b'{"id": NaN}',
        b'{"id": 0, "peak_device_bytes": Infinity}',
        b'{"id": 0, "id": "twice", "results": []}',
        b'{"id": 0, "results": [' + b'{"did":"outputs","tensors":[' + b"{}," * 600_000 + b"{}]}]}",
        b'{"id": 0, "results": [' + b"{}," * 1_000_000 + b"{}]}",
        b'{"id": 0, "results": [' + b'{"did":"done"},' * 200_000 + b'{"did":"done"}]}',
        b'{"id": 0, "results": [' + b'{"did":"exported","refused":[{"name":"' + b"x" * 3_000_000 + b'"}]}]}',
        b"{" + b",".join(b'"k%d":0' % i for i in range(300_000)) + b"}",
        b'{"id": 0, "failure": {"step":0,"kind":"exception","type_name":"\\ud800","text":"\\ud800"}}',
        b'"\xff\xfe\xfd"',
        b'{"id": 0, "failure": "\xed\xa0\x80"}',
        b"\x80\x04\x95",
        b"",
    ],
    ids=lambda body: f"{body[:24]!r}-{len(body)}",
)
def test_hostile_documents_are_malformed_at_once(body):
    with bounded(), pytest.raises(p.MalformedMessage) as raised:
        p.decode_evidence(body)
    assert len(str(raised.value)) < 4096


def test_control_characters_are_removed_from_text():
    body = b'{"id":0,"failure":{"step":0,"kind":"exception","type_name":"A\\u001b[2J","text":"a\\nb\\u0007\\u202e"}}'
    failure = p.decode_evidence(body).failure
    assert failure.type_name == "A?[2J"
    assert failure.text == "a\nb??"


STEPS = [
    p.Drop(),
    p.Forward(model="model", inputs="a", tape="a"),
    p.Export(items={"output:a:output": p.Slot(offset=0, dtype="float32", shape=(4,))}),
]


@FUZZ
@given(st.binary(max_size=2048))
def test_any_bytes_on_the_socket_end_in_a_verdict(noise):
    assert ask(STEPS, lambda job: noise) in (Status.CRASHED, Status.TIMEOUT, Status.INTEGRITY_VIOLATION)


@FUZZ
@given(st.lists(results, max_size=5), failures)
def test_lying_evidence_fits_the_job_or_ends_in_a_verdict(reported, failure):
    answered = ask(STEPS, lambda job: evidence(job, results=reported, failure=failure))
    if not isinstance(answered, p.Evidence):
        assert answered is Status.INTEGRITY_VIOLATION
        return
    kinds = [type(result) for result in answered.results]
    expected = [p.Done, p.Outputs, p.Exported]
    assert kinds == (expected if answered.failure is None else expected[: answered.failure.step])
    for result in answered.results:
        if isinstance(result, p.Exported):
            assert {info.name for info in result.refused} <= {"output:a:output"}


@pytest.mark.parametrize("length", [p.MAX_EVIDENCE_BYTES + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_announced_lengths_are_not_allocated(length):
    assert ask(STEPS, lambda job: struct.pack("<I", length) + b"{}") is Status.INTEGRITY_VIOLATION


@pytest.mark.alone
def test_single_bytes_do_not_extend_the_time_limit():
    def drip(sock):
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(b"\x10")
                time.sleep(0.05)

    with worker() as (remote, sock):
        started = time.monotonic()
        thread = threading.Thread(target=drip, args=(sock,))
        thread.start()
        with pytest.raises(WorkerLost):
            remote.run(STEPS, 1.0)
        assert time.monotonic() - started < 3.0
        sock.close()
        remote.close()
        thread.join()


def test_a_worker_that_does_not_read_its_jobs_times_out():
    with worker() as (remote, _):
        with pytest.raises(WorkerLost) as raised:
            remote.run([p.Import(source="x" * (8 << 20), file_name="f.py", class_name="M")], 0.5)
        assert raised.value.status is Status.TIMEOUT


def test_an_answer_before_the_job_is_a_violation():
    with worker() as (remote, sock):
        sock.sendall(p.encode(p.Evidence(id=1)))
        time.sleep(0.01)
        with pytest.raises(WorkerLost, match="before it had a job") as raised:
            remote.run(STEPS, 1.0)
        assert raised.value.status is Status.INTEGRITY_VIOLATION


def test_a_job_cannot_be_answered_twice():
    done = [{"did": "done"}, {"did": "outputs"}, {"did": "exported"}]
    with worker() as (remote, sock):
        thread = answer(sock, lambda job: 2 * evidence(job, results=done))
        assert remote.run(STEPS, 1.0).failure is None
        thread.join()
        with pytest.raises(WorkerLost) as raised:
            remote.run(STEPS, 1.0)
        assert raised.value.status is Status.INTEGRITY_VIOLATION


@pytest.mark.parametrize(
    ("results", "failure"),
    [
        ([], None),
        ([{"did": "done"}], None),
        ([{"did": "done"}, {"did": "done"}, {"did": "done"}], None),
        ([{"did": "done"}, {"did": "outputs"}, {"did": "exported"}, {"did": "done"}], None),
        ([{"did": "done"}, {"did": "outputs"}, {"did": "exported", "refused": [{"name": "output:a:else"}]}], None),
        (
            [{"did": "done"}, {"did": "outputs", "tensors": [{"name": "y"}, {"name": "y"}]}, {"did": "exported"}],
            None,
        ),
        ([], {"step": 1, "kind": "exception", "type_name": "E", "text": ""}),
        ([], {"step": 4000, "kind": "exception", "type_name": "E", "text": ""}),
        ([], {"step": 0, "kind": "build", "type_name": "E", "text": ""}),
    ],
)
def test_evidence_that_does_not_fit_the_job_is_a_violation(results, failure):
    result = ask(STEPS, lambda job: evidence(job, results=results, failure=failure))
    assert result is Status.INTEGRITY_VIOLATION


@pytest.mark.parametrize("names", [["b"], ["a", "a"], ["a", "b"]])
@pytest.mark.parametrize(
    ("step", "result", "field", "key"),
    [
        (p.Backward(tape="t", grads="g", cotangents={}, wrt=("a",)), "gradients", "tensors", "name"),
        (p.Trace(tape="t", cotangents={}, wrt=("a",)), "traced", "operands", "operand"),
        (p.Export(items={"a": p.Slot(offset=0, dtype="float32", shape=(4,))}), "exported", "refused", "name"),
    ],
)
def test_names_that_were_not_requested_or_occur_twice_are_a_violation(step, result, field, key, names):
    def entry(name):
        return {key: name} if key == "name" else {key: name, "reached": True}

    def answered(names):
        return ask([step], lambda job: evidence(job, results=[{"did": result, field: [entry(n) for n in names]}]))

    assert isinstance(answered(["a"]), p.Evidence)
    assert answered(names) is Status.INTEGRITY_VIOLATION


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 2], [-1, 0], [0, 1, 2], ["0", "1"], [1 << 70, 0]])
def test_only_an_order_of_the_dimensions_is_one(order):
    step = p.Export(items={"a": p.Slot(offset=0, dtype="float32", shape=(2, 3))})

    def answered(orders):
        return ask([step], lambda job: evidence(job, results=[{"did": "exported", "orders": orders}]))

    assert answered({"a": [1, 0]}).results[0].orders == {"a": (1, 0)}
    assert answered({"a": order}) is Status.INTEGRITY_VIOLATION
    assert answered({"b": [1, 0]}) is Status.INTEGRITY_VIOLATION


def test_a_name_of_which_a_character_was_replaced_has_no_order():
    step = p.Export(items={"a\x1b": p.Slot(offset=0, dtype="float32", shape=(2, 3))})
    lie = {"did": "exported", "orders": {"a?": [1, 0]}}
    assert ask([step], lambda job: evidence(job, results=[lie])) is Status.INTEGRITY_VIOLATION


def test_one_name_with_two_shapes_is_a_violation():
    shapes = [{"name": "w", "shape": [8]}, {"name": "w", "shape": [1 << 40, 8]}]
    made = {"did": "constructed", "parameters": shapes[1:], "buffers": shapes[:1]}
    step = p.Construct(model="model", init_inputs=[], device="cpu", seed=0)
    assert ask([step], lambda job: evidence(job, results=[made])) is Status.INTEGRITY_VIOLATION


def test_seal_is_taken_before_the_answer_is_read(monkeypatch):
    taken = []
    with worker() as (remote, sock):
        real = remote._socket.read
        monkeypatch.setattr(remote._socket, "read", lambda *a: (taken.append("read"), real(*a))[1])
        thread = answer(sock, lambda job: evidence(job, results=[{"did": "done"}]))
        remote.run([p.Drop()], 1.0, at_answer=lambda: taken.append("sealed"))
        thread.join()
    assert taken[:2] == ["sealed", "read"]
