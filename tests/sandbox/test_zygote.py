"""Copies of a zygote, which has imported what they need. The conformance cases check that they are confined."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.errors import SandboxError, SandboxUnavailable
from grader.sandbox import CopyOf, Zygote, choose
from tests.sandbox.conformance import LIMITS, wait_for

MODULE = """
import os, socket, sys, time
imported = []

def main(*arguments):
    *fds, what = arguments
    if what == "say":
        imported.append(os.getpid())
        socket.socket(fileno=fds[0]).send(f"{os.getpid()} {os.getppid()} {len(imported)}".encode())
    elif what == "raise":
        raise ValueError("raised by the command")
    elif what == "exit":
        sys.exit(7)
    elif what == "abort":
        os.abort()
    elif what == "sleep":
        time.sleep(1000)
"""


@pytest.fixture(scope="module")
def sandbox():
    try:
        found = choose("auto")
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    if not found.copies:
        pytest.skip("no process can join a sandbox here")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("modules")
    (path / "said.py").write_text(MODULE)
    (path / "more.py").write_text("import said; said.imported += [0, 0]")
    (path / "broken.py").write_text("import time; time.sleep(1); import no_such_module")
    return str(path)


@pytest.fixture
def zygote(folder):
    with Zygote("said", {"PYTHONPATH": folder}, gpu=False) as made:
        yield made


def ended(sandbox, zygote, what):
    with sandbox.spawn(CopyOf(zygote, [what]), limits=LIMITS, gpu=False) as process:
        return process.wait(), process.output().text


def exists(pid):
    return Path(f"/proc/{pid}").exists()


def test_each_copy_starts_with_the_state_of_the_zygote(sandbox, zygote):
    for _ in range(3):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = sandbox.spawn(CopyOf(zygote, ["say"]), limits=LIMITS, gpu=False, pass_fds=[theirs.fileno()])
            assert process.wait().returncode == 0
            pid, parent, count = map(int, ours.recv(100).split())
        assert (parent, count) == (0, 1)
        assert 1 < pid < 20


@pytest.mark.parametrize(
    ("later", "words", "count"), [("more", "", 3), ("broken", "broken was not imported", 1)], ids=["more", "broken"]
)
def test_an_idle_zygote_imports_more_for_later_copies(sandbox, folder, later, words, count):
    def counted(zygote):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with sandbox.spawn(CopyOf(zygote, ["say"]), limits=LIMITS, gpu=False, pass_fds=[theirs.fileno()]) as said:
                assert said.wait().returncode == 0
            return int(ours.recv(100).split()[2])

    with (
        Zygote("said", {"PYTHONPATH": folder}, gpu=False, later=later) as zygote,
        sandbox.spawn(CopyOf(zygote, ["sleep"]), limits=LIMITS, gpu=False),
    ):
        assert counted(zygote) == 1
        # Between requests, it must be idle for long enough.
        wait_for(lambda: time.sleep(0.8) or (words in zygote.last_words() and counted(zygote) == count), 20)


def test_the_end_of_a_copy_is_reported_like_that_of_a_command(sandbox, zygote):
    ending, text = ended(sandbox, zygote, "raise")
    assert ending.returncode == 1
    assert text.endswith("ValueError: raised by the command\n")
    assert ended(sandbox, zygote, "exit")[0].returncode == 7
    assert ended(sandbox, zygote, "abort")[0].signal == signal.SIGABRT


@pytest.mark.alone
def test_all_processes_descend_from_the_roots(sandbox, zygote):
    with sandbox.spawn(CopyOf(zygote, ["sleep"]), limits=LIMITS, gpu=False) as process:
        (copy,) = process.roots - {process.pid}
        assert Path(f"/proc/{copy}/ns/pid").readlink() == Path(f"/proc/{process.pid}/ns/pid").readlink()
        started = time.monotonic()
        process.kill()
        assert time.monotonic() - started < 2
    assert not exists(copy)


def test_copies_end_with_their_sandbox_and_zygote(sandbox, folder):
    with Zygote("said", {"PYTHONPATH": folder}, gpu=False) as zygote:
        with sandbox.spawn(CopyOf(zygote, ["sleep"]), limits=LIMITS, gpu=False) as process:
            (copy,) = process.roots - {process.pid}
        pid = zygote._process.pid
    wait_for(lambda: not exists(copy) and not exists(pid))


def test_a_keeper_can_have_many_descriptors(sandbox, folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        with Zygote("said", {"PYTHONPATH": folder}, gpu=False) as zygote:
            assert ended(sandbox, zygote, "exit")[0].returncode == 7
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_zygote_that_cannot_import_reports_it(sandbox, folder):
    with Zygote("broken", {"PYTHONPATH": folder}, gpu=False) as zygote:
        with sandbox.spawn(CopyOf(zygote, ["say"]), limits=LIMITS, gpu=False) as early:
            assert early.wait().returncode == 126
        wait_for(lambda: zygote.ended)
        assert zygote.last_words() == "ModuleNotFoundError: No module named 'no_such_module'"
        with pytest.raises(SandboxError, match="has ended: ModuleNotFoundError"):
            sandbox.spawn(CopyOf(zygote, ["say"]), limits=LIMITS, gpu=False)


def test_a_killed_zygote_takes_its_copies_with_it(sandbox, folder):
    with (
        Zygote("said", {"PYTHONPATH": folder}, gpu=False) as zygote,
        sandbox.spawn(CopyOf(zygote, ["sleep"]), limits=LIMITS, gpu=False) as process,
    ):
        assert len(process.roots) == 2
        zygote._process.kill()
        # Nothing can tell the sandbox's first command how the copy ended.
        assert process.wait(10).returncode == 126


KEEPER = """
import os, sys, time
from grader.sandbox import CopyOf, Zygote, choose
from tests.sandbox.conformance import LIMITS
zygote = Zygote("said", {"PYTHONPATH": sys.argv[1]}, gpu=False)
process = choose("auto").spawn(CopyOf(zygote, ["sleep"]), limits=LIMITS, gpu=False)
print(os.getpid(), zygote._process.pid, *process.roots, flush=True)
time.sleep(1000)
"""
NOT_REAPED = f"""
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER, like a container's first process
subprocess.Popen([sys.executable, "-c", {KEEPER!r}, sys.argv[1]])
time.sleep(1000)
"""


def test_nothing_is_left_of_a_keeper_that_was_killed(sandbox, folder):
    """Even if no ancestor reaps the copy: the zygote does so before it ends."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", NOT_REAPED, folder], stdout=subprocess.PIPE, env=environment) as above:
        keeper, *others = map(int, above.stdout.readline().split())
        assert len(others) == 3
        assert all(map(runs, others))
        os.kill(keeper, signal.SIGKILL)
        try:
            wait_for(lambda: not any(map(runs, others)))
        finally:
            above.kill()


def runs(pid):
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
