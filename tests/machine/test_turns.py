"""Processes take turns: one alone, or several that share; one that waits to be alone comes before later ones."""

import select
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from grader.catalog.requests import make_request
from grader.grading.record import Record
from grader.machine import turns
from grader.options import GraderOptions
from grader.verdict.models import Device
from tests import samples

TAKER = """
import sys
from grader.machine import turns
turns.join(sys.argv[1])
for line in sys.stdin:
    kind = line.strip()
    with getattr(turns, kind)():
        print(kind, flush=True)
        sys.stdin.readline()
    print("left", flush=True)
"""


class Taker:
    def __init__(self, path):
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", TAKER, path]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)

    def ask(self, kind):
        self.process.stdin.write(f"{kind}\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def waits(self):
        """Whether it waits for the lock rather than says that it has it."""
        deadline = time.monotonic() + 60
        while not any(lock[1] == "->" and lock[5] == str(self.process.pid) for lock in locks()):
            if select.select([self.process.stdout], [], [], 0.01)[0] or time.monotonic() > deadline:
                return False
        return True


def locks():
    return [line.split() for line in Path("/proc/locks").read_text().splitlines()]


@pytest.fixture
def three(tmp_path):
    takers = [Taker(tmp_path / "turns") for _ in range(3)]
    yield takers
    for taker in takers:
        taker.process.kill()
        taker.process.wait()
        taker.process.stdin.close()
        taker.process.stdout.close()


def test_several_share_and_one_is_alone(three):
    one, two, three = three
    for taker in (one, two):
        taker.ask("shared")
        assert taker.hear() == "shared"
    three.ask("alone")
    assert three.waits()
    one.ask("")
    assert one.hear() == "left"
    one.ask("shared")  # behind the one that waits to be alone
    assert one.waits()
    two.ask("")
    assert three.hear() == "alone"
    three.ask("")
    assert one.hear() == "shared"


def test_the_turn_of_a_killed_process_ends(three):
    one, two, _ = three
    one.ask("alone")
    assert one.hear() == "alone"
    two.ask("shared")
    assert two.waits()
    one.process.kill()
    assert two.hear() == "shared"


@pytest.mark.parametrize(
    ("device", "stage", "kind"),
    [("cpu", "timing", "alone"), ("cpu", "forward", "shared"), ("cuda", "timing", "shared")],
)
def test_a_stage_times_alone_on_the_cpu_only(monkeypatch, device, stage, kind):
    taken = []
    for one in ("alone", "shared"):
        monkeypatch.setattr(turns, one, lambda one=one: taken.append(one) or nullcontext())
    request = make_request(
        samples.problem(), samples.submission(), GraderOptions(device=device), default_device=Device.CPU
    )
    with Record(request).stage(stage):
        assert taken == [kind]
