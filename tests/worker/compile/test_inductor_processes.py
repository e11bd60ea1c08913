"""TorchInductor's processes end at once, whatever they have left to do."""

import functools
import subprocess
import time

import pytest

from grader.worker.setup import _end_compilers
from tests.sandbox.conformance import wait_for


def living_children(pid):
    """Processes whose parent is `pid`, without those that have ended."""
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "Z" not in line.split()[1]]


def is_living(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


@pytest.mark.slow
def test_they_end_in_the_middle_of_their_work(monkeypatch):
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile

    monkeypatch.setattr(config, "compile_threads", 2)
    pool = AsyncCompile.process_pool()
    pool.submit(functools.partial(pow, 2, 3)).result(120)
    for _ in range(4):
        pool.submit(functools.partial(time.sleep, 600))
    processes = [pool.process.pid, *living_children(pool.process.pid)]
    assert len(processes) > 2
    _end_compilers()
    wait_for(lambda: not any(map(is_living, processes)))
