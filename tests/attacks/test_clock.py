"""The referee's clock against reported times, the seal against late writers, and the pause against what runs on."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from grader.executor import pause
from grader.executor import shared_memory as sealing
from grader.executor.client import WorkerLost
from grader.executor.launcher import Role
from grader.executor.pause import IDLE_SECONDS, LATE_SECONDS, Idleness, NeverStill, idle, paused_tree
from grader.executor.process_table import tree
from grader.executor.shared_memory import Layout, Region
from grader.executor.worker_process import Killer, waited_ms
from grader.grading.resources import Resources
from grader.grading.timing.clocks import Samples, Time, timing_of
from grader.grading.timing.statistics import Bias
from grader.protocol import Drop, Import
from grader.verdict.models import Device, Status

OVERHEAD_MS = 0.3


def samples(reference_ms, candidate_ms, reported_ms=None, *, rounds=7, noise_ms=0.01, device=Device.CPU):
    """Rounds in which the candidate takes one time and reports another."""
    reported_ms = candidate_ms if reported_ms is None else reported_ms
    jitter = torch.linspace(-noise_ms, noise_ms, 4 * rounds).tolist()[::-1]
    made = Samples(device)
    for _ in range(rounds):
        pairs = []
        for _ in range(2):
            reference = Time(reference_ms, reference_ms + OVERHEAD_MS + jitter.pop())
            pairs.append((reference, Time(reported_ms, candidate_ms + OVERHEAD_MS + jitter.pop())))
        made.rounds.append(tuple(pairs))
    return made


def test_an_honest_report_counts():
    timing, disputed = timing_of(samples(2.0, 1.0))
    assert (timing.clock, disputed) == ("worker", False)
    assert timing.speedup == pytest.approx(2.0)
    assert timing.verdict == "faster"


@pytest.mark.parametrize("reported_ms", [0.0, 1e-6, 0.1, 0.5, 0.9])
def test_a_short_report_is_replaced_by_the_referees_time(reported_ms):
    timing, disputed = timing_of(samples(1.0, 1.0, reported_ms))
    assert (timing.clock, disputed) == ("referee", reported_ms < 0.9)  # honest overheads differ by a tenth of a call
    assert timing.speedup == pytest.approx(1.0, rel=0.03)
    assert timing.verdict != "faster"


def test_a_report_within_the_agreement_does_not_make_it_faster():
    timing, _ = timing_of(samples(1.0, 1.0, 0.96))
    assert timing.clock == "worker"
    assert timing.verdict != "faster"


def test_a_time_that_the_clock_does_not_resolve_is_no_gain():
    timing, _ = timing_of(samples(0.05, 0.05, 0.0, noise_ms=0.1))
    assert timing.clock == "referee"
    assert timing.speedup < 1.5


@pytest.mark.parametrize(("rounds", "clock"), [(3, "worker"), (12, "referee")])
def test_of_few_samples_the_noise_is_known_badly(rounds, clock):
    timing, _ = timing_of(samples(1.0, 1.1, 1.0, rounds=rounds, noise_ms=0.05))
    assert timing.clock == clock


def test_on_a_gpu_a_few_microseconds_are_told_apart():
    """Intervals repeat within a microsecond or two there, around an overhead of some 0.4 ms."""
    honest, disputed = timing_of(samples(0.016, 0.016, noise_ms=0.001, device=Device.CUDA))
    assert (honest.clock, disputed) == ("worker", False)
    timing, disputed = timing_of(samples(0.016, 0.016, 0.004, noise_ms=0.001, device=Device.CUDA))
    assert (timing.clock, disputed) == ("referee", True)
    assert timing.speedup == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(("reported_ms", "clock"), [(0.0146, "worker"), (0.013, "referee"), (0.0115, "referee")])
def test_on_a_gpu_two_microseconds_may_be_the_processs_own(reported_ms, clock):
    """What an interval holds beside the call is not the same in every process, but steady in each."""
    timing, disputed = timing_of(samples(0.016, 0.016, reported_ms, noise_ms=0.0001, rounds=60, device=Device.CUDA))
    assert (timing.clock, disputed) == (clock, False)
    assert timing.ci_low == pytest.approx(1.0, rel=0.02)  # which ranks: nothing is gained


@pytest.mark.parametrize(("intervals", "clock"), [(1, "referee"), (2, "worker")])
def test_on_a_gpu_each_of_two_intervals_may_hold_its_processs_own(intervals, clock):
    """Forward and backward are two jobs: two honest processes may differ by 3.5 us in their sum."""
    made = samples(0.060, 0.0635, 0.060, noise_ms=0.0001, rounds=30, device=Device.CUDA)
    made.rounds = [
        tuple(tuple(replace(time, intervals=intervals) for time in pair) for pair in pairs) for pairs in made.rounds
    ]
    timing, disputed = timing_of(made)
    assert (timing.clock, disputed) == (clock, False)
    assert timing.ci_low == pytest.approx(60 / 63.5, rel=0.01)


@pytest.mark.parametrize(
    ("reference_ms", "candidate_ms", "verdict"),
    [
        (0.0163, 0.0166, "same"),
        (0.0600, 0.0606, "same"),
        (0.0200, 0.0206, "slower"),
        (0.0600, 0.0612, "slower"),
        (0.2000, 0.2026, "slower"),
    ],
)
def test_on_a_gpu_what_two_processes_differ_by_is_no_difference(reference_ms, candidate_ms, verdict):
    timing, _ = timing_of(samples(reference_ms, candidate_ms, noise_ms=0.0001, device=Device.CUDA))
    assert timing.verdict == verdict


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [([0.51, 0.52, 0.52, 0.52], [0.64, 1.49, 1.66, 1.72]), ([0.51, 0.52, 0.52, 0.74], [1.26, 2.33, 3.03, 3.12])],
)
@pytest.mark.parametrize(("share", "disputed"), [(1.0, False), (0.7, True)])
def test_the_hosts_work_behind_launches_accuses_nobody(reference, candidate, share, disputed):
    """Overheads in ms of equal backwards of KernelBench's SwinTransformerV2 on an H200, of 13.5 ms each."""
    pairs = [
        (Time(13.5, 13.5 + theirs), Time(13.5 * share, 13.5 + own))
        for theirs, own in zip(reference, candidate, strict=True)
    ]
    made = Samples(Device.CUDA, [tuple(pairs[:2]), tuple(pairs[2:])], Bias(launches=True))
    timing, accused = timing_of(made)
    assert (timing.clock, accused) == ("referee", disputed)


def test_a_long_report_counts():
    timing, _ = timing_of(samples(1.0, 1.0, 3.0))
    assert timing.speedup == pytest.approx(1 / 3)


def test_a_seal_is_copied_in_an_order_that_nobody_knows(monkeypatch):
    """A writer that starts with his answer would have to be ahead of the copy everywhere at once."""
    nbytes = 8 << 20
    outbox = Region("outbox", "host", nbytes)
    orders = []

    class Recorder(random.SystemRandom):
        def shuffle(self, starts):
            super().shuffle(starts)
            orders.append(list(starts))

    monkeypatch.setattr(sealing, "_SHUFFLE", Recorder())
    for _ in range(2):
        sealing.Seal(outbox, nbytes).take()
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(0, nbytes, nbytes // sealing.SEAL_BLOCKS))
    assert orders[0] != orders[1]
    outbox.close()


def test_a_seal_is_private():
    layout = Layout()
    slot = layout.place(torch.float32, (1000,))
    outbox = Region("outbox", "host", layout.nbytes)
    outbox.view(slot).fill_(1.0)
    seal = sealing.Seal(outbox, layout.nbytes)
    seal.take()
    outbox.view(slot).fill_(2.0)
    assert bool((seal.view(slot) == 1.0).all())
    outbox.close()


SPINNERS = """
import os, sys, threading
def spin():
    while True:
        pass
for _ in range(2):
    if os.fork() == 0:
        break
threading.Thread(target=spin, daemon=True).start()
print("up", flush=True)
spin()
"""


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def started():
    processes = []

    def start(code):
        processes.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True))
        return processes[-1]

    yield start
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.mark.alone
def test_paused_processes_use_no_cpu_and_go_on_afterwards(started):
    process = started(SPINNERS)
    for _ in range(3):
        process.stdout.readline()
    pids = tree({process.pid})
    assert len(pids) == 3
    with paused_tree({process.pid}, likely := set()):
        before = cpu_seconds(pids)
        time.sleep(0.3)
        assert cpu_seconds(pids) == before
    assert likely == pids.keys()
    time.sleep(0.5)
    assert cpu_seconds(pids) > before


@pytest.mark.parametrize("likely", ["none of them", "all of them", "one of them", "others"])
def test_who_was_there_last_time_is_only_where_to_look_first(started, likely):
    process, other = started(SPINNERS), started(SPINNERS)
    for each in (process, other):
        for _ in range(3):
            each.stdout.readline()
    pids, others = tree({process.pid}), tree({other.pid})
    guess = {"none of them": set(), "all of them": set(pids), "one of them": {max(pids)}, "others": set(others)}[likely]
    with paused_tree({process.pid}, guess):
        assert guess == pids.keys()
        assert set(tree({process.pid}).values()) == {"T"}
        assert "T" not in tree({other.pid}).values()


HIDDEN_SPINNERS = """
import os, torch
def spin():
    while True:
        pass
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            spin()
        os._exit(0)
class ModelNew(torch.nn.Module):
    pass
"""


RESTARTS_ITSELF = (
    HIDDEN_SPINNERS
    + """
import ctypes, signal, struct, threading, time
libc = ctypes.CDLL(None)
if os.fork() == 0:
    signal.signal(signal.SIGCONT, lambda *_: None)
    timers = [ctypes.c_int(-1) for _ in range(8)]
    for timer in timers:  # CLOCK_MONOTONIC and SIGEV_SIGNAL
        libc.syscall(222, 1, struct.pack("=Qii48x", 0, signal.SIGCONT, 0), ctypes.byref(timer))
    while True:
        for number, timer in enumerate(timers, 1):
            libc.syscall(223, timer.value, 0, struct.pack("=qqqq", 0, 0, 0, number * 1_000_000), None)
"""
)
"""A process whose timers continue it, one to eight milliseconds after it last ran."""

WRITES_ON = (
    HIDDEN_SPINNERS
    + """
import threading
def write():
    file, block = os.memfd_create("file"), bytes(1 << 28)
    while True:
        os.pwrite(file, block, 0)
threading.Thread(target=write, daemon=True).start()
"""
)
"""A second thread is in system calls of a tenth of a second that no signal interrupts."""

ENDS_ONE_BY_ONE = """
import mmap, os, signal, time, torch
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
file, size = os.memfd_create("file"), 1 << 28
os.posix_fallocate(file, 0, size)
for number in range(20):
    if os.fork() == 0:
        pages = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        signal.setitimer(signal.ITIMER_REAL, 0.5 + number / 10)
        while True:
            time.sleep(3600)
class ModelNew(torch.nn.Module):
    pass
"""
"""Its timers end processes that sleep, frozen ones too; taking down their pages takes the kernel milliseconds each."""


@pytest.fixture(scope="module")
def resources():
    with Resources() as resources:
        yield resources


def started_worker(resources, source, means):
    """A worker that has imported the source, and is stopped by these means."""
    worker = resources.launcher.take(Role.RUN, Device.CPU)
    process = worker._process
    if (means == "freezer" and process.freezer is None) or (means == "cgroup" and process.members is None):
        worker.close()
        pytest.skip("no such cgroup can be made here")
    process.freezer = process.freezer if means == "freezer" else None
    process.members = None if means == "tree" else process.members
    imported = Import(source=source, file_name="spins.py", class_name="ModelNew")
    assert worker.run([imported], 60.0).failure is None
    return worker


def wait_for(happened):
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def await_spinning(roots):
    deadline = time.monotonic() + 20
    while True:
        assert time.monotonic() < deadline, "nothing spins: pausing it would show nothing"
        time.sleep(0.2)
        pids = tree(roots)  # they fork twice, some time after the import
        before = cpu_seconds(pids)
        time.sleep(0.2)
        if cpu_seconds(pids) > before:
            return pids


@pytest.mark.alone
@pytest.mark.parametrize("source", [HIDDEN_SPINNERS, RESTARTS_ITSELF, WRITES_ON], ids=["spins", "restarts", "writes"])
@pytest.mark.parametrize("means", ["freezer", "cgroup", "tree"])
def test_a_worker_that_is_paused_has_no_process_that_runs(resources, means, source):
    with started_worker(resources, source, means) as worker:
        pids = await_spinning(worker._process.roots)
        for _ in range(3):
            with worker.paused(untrusted=True):
                before = cpu_seconds(pids)
                time.sleep(0.1)
                assert cpu_seconds(pids) == before
        assert worker.run([Drop()], 60.0).failure is None


@pytest.mark.parametrize("means", ["cgroup", "tree"])
def test_a_worker_that_runs_while_it_is_paused_is_lost(resources, means):
    """However it is continued: here by a signal from outside."""
    with started_worker(resources, HIDDEN_SPINNERS, means) as worker:
        pids = await_spinning(worker._process.roots)
        with pytest.raises(WorkerLost, match="while it was stopped") as lost, worker.paused(untrusted=True):  # noqa: PT012
            before = cpu_seconds(pids)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            wait_for(lambda: cpu_seconds(pids) > before + 0.1)
        assert lost.value.status is Status.INTEGRITY_VIOLATION


def first_command(pids):
    """The one of a sandbox's processes that waits for the worker, which its namespace ends with."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
    (first,) = [pid for pid, line in commands.items() if b"The first command" in line and b"--info-fd" not in line]
    return first


@pytest.mark.parametrize("means", ["freezer", "cgroup", "tree"])
def test_processes_that_end_while_they_are_paused_count(resources, means):
    """A SIGKILL here; a frozen process can arrange its own end."""
    with started_worker(resources, HIDDEN_SPINNERS, means) as worker:
        pids = await_spinning(worker._process.roots)
        pids = pids.keys() - worker._process.roots - {first_command(pids)}
        with pytest.raises(WorkerLost, match="while it was stopped") as lost, worker.paused(untrusted=True):  # noqa: PT012
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not any(alive(pid) for pid in pids))
        assert lost.value.status is Status.INTEGRITY_VIOLATION


@pytest.mark.parametrize("means", ["freezer", "cgroup", "tree"])
def test_a_worker_that_is_killed_while_it_is_paused_did_nothing(resources, means):
    with started_worker(resources, HIDDEN_SPINNERS, means) as worker:
        await_spinning(worker._process.roots)
        with worker.paused(untrusted=True):
            for pid in worker._process.roots:
                with contextlib.suppress(ProcessLookupError):  # it ended with the first one
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not any(alive(pid) for pid in worker._process.roots))
        with pytest.raises(WorkerLost) as lost:
            worker.run([Drop()], 60.0)
        assert (lost.value.status, lost.value.killer) == (Status.CRASHED, Killer.UNKNOWN)


@pytest.mark.parametrize("means", ["freezer", "cgroup", "tree"])
def test_a_sandbox_whose_first_command_is_killed_while_it_is_paused_did_nothing(resources, means):
    """That one only waits; the first process of the namespace, which is stopped too, ends when it has."""
    with started_worker(resources, HIDDEN_SPINNERS, means) as worker:
        pids = await_spinning(worker._process.roots)
        first = first_command(pids)
        with worker.paused(untrusted=True):
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: not alive(first))
        wait_for(lambda: not any(alive(pid) for pid in worker._process.roots))
        with pytest.raises(WorkerLost) as lost:
            worker.run([Drop()], 60.0)
        assert (lost.value.status, lost.value.killer) == (Status.CRASHED, Killer.UNKNOWN)


def test_what_a_killed_worker_takes_to_end_is_not_its_own(monkeypatch):
    """It uses the CPU to free its memory, and is not gone at once."""
    looks = iter([True, True, False])
    monkeypatch.setattr(pause, "is_alive", lambda pid: next(looks))
    with pause.unless_ended({1}):
        raise NeverStill("used the CPU for 13 ms while it was stopped")
    monkeypatch.setattr(pause, "is_alive", lambda pid: True)
    with pytest.raises(NeverStill), pause.unless_ended({1}):
        raise NeverStill("used the CPU for 13 ms while it was stopped")


def test_timers_that_end_frozen_processes_are_noticed(resources):
    with started_worker(resources, ENDS_ONE_BY_ONE, "freezer") as worker:
        with pytest.raises(WorkerLost, match="while it was stopped") as lost, worker.paused(untrusted=True):
            time.sleep(2.5)
        assert lost.value.status is Status.INTEGRITY_VIOLATION


def test_no_signal_continues_a_frozen_worker(resources):
    with started_worker(resources, HIDDEN_SPINNERS, "freezer") as worker:
        pids = await_spinning(worker._process.roots)
        with worker.paused(untrusted=True):
            for _ in range(100):
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
                time.sleep(1e-4)


def test_a_process_that_was_not_there_before_counts_with_all_that_it_used(started):
    process = started(SPINNERS)
    process.stdout.readline()
    time.sleep(0.1)
    with pytest.raises(NeverStill), idle(lambda: [], lambda: [process.pid], Idleness()):
        pass


def test_time_that_is_counted_late_is_forgiven_once():
    idleness = Idleness()
    idleness.judge(IDLE_SECONDS)
    idleness.judge(LATE_SECONDS)
    idleness.judge(IDLE_SECONDS)
    with pytest.raises(NeverStill, match="used the CPU"):
        idleness.judge(2 * IDLE_SECONDS)
    with pytest.raises(NeverStill, match="used the CPU"):
        Idleness().judge(2 * LATE_SECONDS)


FORK_CHAIN = """
import os, time
print("up", flush=True)
while True:
    if os.fork():
        os._exit(0) if os.getpid() != {root} else time.sleep(3600)
"""


def test_a_process_that_keeps_forking_is_caught_or_reported(started):
    process = started("import os\nexec(" + repr(FORK_CHAIN) + ".replace('{root}', str(os.getpid())))")
    process.stdout.readline()
    try:
        with paused_tree({process.pid}, set()):
            states = tree({process.pid})
            assert set(states.values()) <= set("TtZX")
    except NeverStill:
        pass


def test_samples_are_kept_in_six_digits_and_the_figures_in_full():
    timing, _ = timing_of(samples(2 / 3, 1 / 3))
    assert set(timing.candidate_samples_ms) == {0.333333}
    assert timing.candidate_ms == 1 / 3


def test_two_times_that_the_clock_cannot_tell_are_not_called_the_same():
    timing, _ = timing_of(samples(0.05, 0.05, 0.0, noise_ms=10.0))
    assert (timing.clock, timing.verdict) == ("referee", "inconclusive")


@pytest.mark.parametrize(("delayed", "disputed"), [(3, False), (6, True)])
def test_only_reports_that_are_short_throughout_are_disputed(delayed, disputed):
    """Other work on a CPU lengthens some of few intervals, a false timer shortens every report."""
    made = samples(1.0, 1.0, rounds=3)
    pairs = [pair for of_round in made.rounds for pair in of_round]
    for index in range(6 - delayed, 6):
        reference, candidate = pairs[index]
        pairs[index] = reference, Time(candidate.reported, candidate.interval + 1.5)
    made.rounds = list(zip(pairs[::2], pairs[1::2], strict=True))
    timing, called = timing_of(made)
    assert (timing.clock, called) == ("referee", disputed)


@pytest.mark.parametrize(("waited", "disputed"), [(0.0, True), (1.4, False)])
def test_waits_for_a_core_are_no_false_report(waited, disputed):
    made = samples(1.0, 1.0)
    made.rounds = [
        tuple(
            (reference, replace(candidate, interval=candidate.interval + 1.5, waited=waited))
            for reference, candidate in of_round
        )
        for of_round in made.rounds
    ]
    timing, called = timing_of(made)
    assert (timing.clock, called) == ("referee", disputed)


def test_waits_for_a_core_are_counted():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    core = {min(os.sched_getaffinity(0))}
    try:
        for one in busy:
            os.sched_setaffinity(one.pid, core)
        before = waited_ms(one.pid for one in busy)
        time.sleep(0.5)
        assert waited_ms(one.pid for one in busy) - before > 100
    finally:
        for one in busy:
            one.kill()
            one.wait()
