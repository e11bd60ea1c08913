"""Where launches show, the reference is moved to a process of the candidate's pace."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from grader.catalog.problems import find_problems
from grader.executor.launcher import Role
from grader.grading import plan, selftest
from grader.grading.oracle import variations
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.models import WORKERS_KEPT
from grader.grading.resources import Resources
from grader.grading.timing.launches import launches_show
from grader.grading.timing.stopping import QUICK
from grader.protocol import Warmed
from grader.verdict.models import Device, Problem

SHORT, _, LONG = selftest.problems(Device.CPU, find_problems().problem(selftest.CONVOLUTION))
START_SECONDS = QUICK.seconds / 2
"""What a process takes to start, here."""
WAITS = """

import time

class Waiting(Model):
    def forward(self, x):
        time.sleep(0.3)
        return super().forward(x)

Model = Waiting
"""


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


class Worker:
    def __init__(self, launch_ms, call_ms=0.015):
        self.pace = None if launch_ms is None else Warmed(launch_ms=launch_ms, call_ms=call_ms)
        self.closed = False

    def wait_ready(self):
        pass

    def close(self):
        self.closed = True


def align(monkeypatch, *, held, fresh, wanted=0.00170, shows=True, pace_tolerance=0.03, comparable=True):
    """Paces of the processes that the reference was moved to, and how many were started for it."""
    monkeypatch.setattr("grader.grading.resources.launches_show", lambda oracle, case, short_ms: shows)
    held, started, coming = [Worker(*found) for found in held], [], iter(fresh)

    def take(role, device):
        started.append(Worker(*next(coming)))
        return started[-1]

    monkeypatch.setattr("time.monotonic", lambda: START_SECONDS * len(started))

    moved_to = []
    process = SimpleNamespace(workers=held)

    def move_to(worker):
        moved_to.append(worker)
        process.workers = [worker, *held]

    oracle = SimpleNamespace(process=process, models=SimpleNamespace(move_to=move_to), device=Device.CUDA)
    resources = SimpleNamespace(launcher=SimpleNamespace(take=take))
    candidate, case = SimpleNamespace(worker=Worker(wanted)), SimpleNamespace(values_comparable=comparable)
    left = Resources.align(resources, oracle, candidate, case, replace(QUICK, pace_tolerance=pace_tolerance))
    found = [(worker.pace.launch_ms / wanted - 1, worker.pace.call_ms / 0.015 - 1) for worker in moved_to]
    assert left == max((abs(apart) for apart in (found or [(0.0,)])[0]), default=0.0)
    assert [worker for worker in started if not worker.closed] == [worker for worker in moved_to if worker in started]
    assert not any(worker.closed for worker in held)
    return [(worker.pace.launch_ms, worker.pace.call_ms) for worker in moved_to], len(started)


def test_a_reference_that_is_like_the_candidate_stays(monkeypatch):
    assert align(monkeypatch, held=[(0.00171, 0.0151)], fresh=[]) == ([(0.00171, 0.0151)], 0)


def test_an_earlier_process_is_used_again(monkeypatch):
    held = [(0.00160, 0.0150), (0.00170, 0.0155), (0.00169, 0.0150)]
    assert align(monkeypatch, held=held, fresh=[]) == ([held[2]], 0)


def test_processes_are_started_until_one_is_like_the_candidate(monkeypatch):
    fresh = [(0.00160, 0.0150), (0.00172, 0.0149), (0.00170, 0.0150)]
    assert align(monkeypatch, held=[(0.00161, 0.0150)], fresh=fresh) == ([fresh[1]], 2)


def test_without_a_like_process_the_nearest_is_used(monkeypatch):
    fresh = [(0.0010 + 0.0001 * (n == 1), 0.0150) for n in range(2)]
    assert QUICK.seconds / START_SECONDS == 2
    assert align(monkeypatch, held=[(0.0009, 0.0150)], fresh=fresh) == ([fresh[1]], 2)


@pytest.mark.parametrize(
    ("wanted", "shows", "comparable"), [(None, True, True), (0.0017, False, True), (0.0017, True, False)]
)
def test_nothing_is_started_where_launches_do_not_show(monkeypatch, wanted, shows, comparable):
    result = align(monkeypatch, held=[(0.0012, 0.0150)], fresh=[], wanted=wanted, shows=shows, comparable=comparable)
    assert result == ([], 0)


@pytest.mark.alone
def test_launches_show_only_in_calls_of_short_kernels(resources):
    short_ms = 10.0  # a CPU's operation may wait for its threads
    slow = Problem(id="slow", path=SHORT.path, source=SHORT.source + WAITS)
    for problem, shows in ((SHORT, True), (slow, False)):
        oracle = resources.oracle(problem, Device.CPU)
        assert launches_show(oracle, oracle.case(plan.variants(oracle)[-1]), short_ms) is shows


def test_answers_of_a_reference_stand_after_a_move(resources):
    oracle = resources.oracle(SHORT, Device.CPU)
    case, first = oracle.case("full"), oracle.process.worker

    def answered():
        return variations.outputs_of(oracle, replace(case, inputs=tuple(oracle.models.draw("full")[1]))).keys()

    before = answered()
    others = [resources.launcher.take(Role.REFERENCE, Device.CPU) for _ in range(WORKERS_KEPT)]
    for other in others:
        oracle.models.move_to(other)
        assert oracle.process.worker is other
        assert oracle.case("full") is case
        assert answered() == before
        outputs = next(oracle.ask(case, [Pass(MODEL, case.inputs, case.state)])).outputs
        assert all(
            torch.allclose(outputs[name].double(), expected.reference64) for name, expected in case.outputs.items()
        )
    assert first.ended
    oracle.models.move_to(others[0])
    assert oracle.process.workers == [others[0], *reversed(others[1:])]
    assert answered() == before
    resources.oracle(LONG, Device.CPU)
    assert oracle.process.workers == [others[0]]
    assert others[1].ended
    assert resources.oracle(SHORT, Device.CPU) is oracle
    assert answered() == before


@pytest.mark.alone
@pytest.mark.gpu
def test_on_a_gpu_each_candidate_has_a_reference_like_it():
    """In as many starts as it takes; with `--quick` there is time for two, and the nearest is used."""
    problem, patient = selftest.problems(Device.CUDA, LONG)[0], replace(QUICK, seconds=15.0)
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CUDA)
        for _ in range(4):
            with resources.candidate(selftest.itself(problem), Device.CUDA) as candidate:
                resources.align(oracle, candidate, oracle.case("full"), patient)
                ours, theirs = oracle.process.worker.pace, candidate.worker.pace
                assert 0.0005 < theirs.launch_ms < 0.01
                assert 0.005 < theirs.call_ms < 0.1
                for name in ("launch_ms", "call_ms"):
                    assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=QUICK.pace_tolerance)
