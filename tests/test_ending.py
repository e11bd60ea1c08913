"""A process that a signal ends cleans up, however many signals come."""

import os
import signal
import subprocess
import sys
import time

import pytest

from grader.ending import UNFLUSHED
from grader.options import GraderOptions
from grader.pool.messages import Setup
from grader.verdict.models import Device
from tests.pool.test_pool import CHEAP, ROOT

CLEANS_UP = """
import signal, time
from grader.ending import end_on
end_on((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
try:
    print("begun", flush=True)
    signal.pause()
finally:
    print("ending", flush=True)
    time.sleep(0.5)
    print("cleaned", flush=True)
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_end_the_cleaning_up(first):
    with subprocess.Popen([sys.executable, "-c", CLEANS_UP], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(first)
        assert process.stdout.readline() == "ending\n"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        assert process.stdout.read() == "cleaned\n"
    assert process.returncode == (-signal.SIGINT if first == signal.SIGINT else 128 + first)


POSTPONES = """
import signal, sys
from grader.ending import end_on, postponed
end_on((signal.SIGTERM,))
try:
    with postponed():
        print("begun", flush=True)
        sys.stdin.readline()
    signal.pause()
finally:
    print("ending", flush=True)
"""


def test_a_postponed_signal_ends_after_the_block():
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", POSTPONES], text=True, **pipes) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "ending\n"
    assert process.returncode == 128 + signal.SIGTERM


DROPS_EXCEPTIONS = """
import sys
print("importing", flush=True)
try:
    sys.stdin.readline()
except BaseException:
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_numpy_is_imported_is_not_lost(tmp_path, number):
    (tmp_path / "numpy.py").write_text(DROPS_EXCEPTIONS)
    code = CLEANS_UP.replace('print("begun", flush=True)', "import numpy")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        time.sleep(0.2)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "ending\ncleaned\n"


def test_a_place_whose_pool_ends_while_it_starts_leaves_nothing(tmp_path):
    setup = Setup(engine="tests.pool.engine:never_made", options=GraderOptions(device="cpu"), device=Device.CPU)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    argv = [sys.executable, "-P", "-m", "grader.pool.process"]
    with subprocess.Popen(argv, env=environment, text=True, **pipes) as place:
        place.stdin.write(setup.model_dump_json() + "\n")
        place.stdin.flush()
        until = time.monotonic() + 60
        while not any(tmp_path.iterdir()):
            assert time.monotonic() < until, "it does not start"
            time.sleep(0.01)
        place.send_signal(signal.SIGHUP)  # of a terminal that hung up
        place.stdin.close()
        assert place.wait(10) == 128 + signal.SIGTERM
        assert "Traceback" not in place.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_nobody_listens_to_says_nothing():
    setup = Setup(engine=CHEAP, options=GraderOptions(device="cpu"), device=Device.CPU)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    argv = [sys.executable, "-P", "-m", "grader.pool.process"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=environment, text=True, **pipes) as place:
        place.stdout.close()
        place.stdin.write(setup.model_dump_json() + "\n")
        place.stdin.flush()
        assert place.wait(60) == 1
        assert place.stderr.read() == ""


LEAVING = """
import atexit, os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from grader.ending import leave

atexit.register(lambda: print("handler", flush=True))
pool = ThreadPoolExecutor(1)
pool.submit(lambda: None)
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("last words", file=sys.stderr)
leave(7)
"""


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_a_process_leaves_after_its_threads_and_exit_handlers():
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=60, env=BUFFERED, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "thread\nhandler\n", "last words\n")


@pytest.mark.parametrize(("status", "left"), [(0, UNFLUSHED), (2, 2)])
def test_output_that_nobody_reads_is_in_the_status(status, left):
    code = f"from grader.ending import leave; print('lost'); leave({status})"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as into:
        ended = subprocess.run([sys.executable, "-c", code], stdout=into, timeout=60, check=False, env=BUFFERED)
    assert ended.returncode == left
