"""Where launches show, both processes are such that launches cost them the same."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from grader import selftest
from grader.catalog import find_problems
from grader.models import Device, Problem
from grader.remote.launch import Role
from grader.stages import plan, questions
from grader.stages.reference import WORKERS_KEPT
from grader.stages.timing.rounds import QUICK
from grader.workshop import ALIGN_TRIES, Workshop

SHORT, _, LONG = selftest.problems(Device.CPU, find_problems().problem(selftest.CONVOLUTION))
WAITS = """

import time

class Waiting(Model):
    def forward(self, x):
        time.sleep(0.3)
        return super().forward(x)

Model = Waiting
"""


@pytest.fixture(scope="module")
def workshop():
    with Workshop() as made:
        yield made


class Worker:
    def __init__(self, launch_ms):
        self.launch_ms, self.closed = launch_ms, False

    def wait_ready(self):
        pass

    def close(self):
        self.closed = True


def align(monkeypatch, *, held, fresh, wanted=0.0070, shows=True, alike=0.03, comparable=True):
    """Who is asked after that, and who was started for it."""
    monkeypatch.setattr(questions, "launches_show", lambda desk, case: shows)
    held, started, coming = [Worker(ms) for ms in held], [], iter(fresh)

    def take(role, device):
        started.append(Worker(next(coming)))
        return started[-1]

    asked = []
    desk = SimpleNamespace(workers=held, device=Device.CUDA)

    def move_to(worker):
        asked.append(worker)
        desk.workers = [worker, *held]

    desk.move_to = move_to
    shop = SimpleNamespace(launcher=SimpleNamespace(take=take))
    candidate, case = SimpleNamespace(worker=Worker(wanted)), SimpleNamespace(values_comparable=comparable)
    Workshop.align(shop, desk, candidate, case, replace(QUICK, alike=alike))
    assert [worker for worker in started if not worker.closed] == [worker for worker in asked if worker in started]
    assert not any(worker.closed for worker in held)
    return [worker.launch_ms for worker in asked], [worker.launch_ms for worker in started]


def test_a_reference_that_is_like_the_candidate_stays(monkeypatch):
    assert align(monkeypatch, held=[0.0071], fresh=[]) == ([0.0071], [])


def test_one_that_was_asked_before_is_asked_again(monkeypatch):
    assert align(monkeypatch, held=[0.0066, 0.0069], fresh=[]) == ([0.0069], [])


def test_others_are_started_until_one_is_like_the_candidate(monkeypatch):
    assert align(monkeypatch, held=[0.0066], fresh=[0.0065, 0.0066, 0.0071, 0.0070]) == (
        [0.0071],
        [0.0065, 0.0066, 0.0071],
    )


def test_where_none_is_the_nearest_is_taken(monkeypatch):
    fresh = [0.0060 + 0.0001 * (n == 3) for n in range(ALIGN_TRIES)]
    assert align(monkeypatch, held=[0.0050], fresh=fresh) == ([0.0061], fresh)


@pytest.mark.parametrize(
    ("wanted", "shows", "comparable"), [(None, True, True), (0.0070, False, True), (0.0070, True, False)]
)
def test_where_nothing_shows_nothing_is_started(monkeypatch, wanted, shows, comparable):
    told = align(monkeypatch, held=[0.0050], fresh=[], wanted=wanted, shows=shows, comparable=comparable)
    assert told == ([], [])


def test_launches_show_in_calls_of_short_kernels_alone(workshop, monkeypatch):
    monkeypatch.setattr(questions, "SHORT_MS", 10.0)  # a CPU's operation may wait for its threads
    slow = Problem(id="slow", path=SHORT.path, source=SHORT.source + WAITS)
    for problem, shows in ((SHORT, True), (slow, False)):
        desk = workshop.desk(problem, Device.CPU)
        assert questions.launches_show(desk, desk.case(plan.variants(desk)[-1])) is shows


def test_what_a_reference_said_stands_when_another_process_is_asked(workshop):
    desk = workshop.desk(SHORT, Device.CPU)
    case, first = desk.case("full"), desk.worker
    before = questions.redrawn(desk, case).keys()
    others = [workshop.launcher.take(Role.REFERENCE, Device.CPU) for _ in range(WORKERS_KEPT)]
    for other in others:
        desk.move_to(other)
        assert desk.worker is other
        assert desk.case("full") is case
        assert questions.redrawn(desk, case).keys() == before
        outputs = desk.evaluate("model", desk.traits(case), case.inputs, case.state, {}, (), True).outputs
        assert all(torch.allclose(outputs[name].double(), of.golden) for name, of in case.outputs.items())
    assert first.ended
    desk.move_to(others[0])
    assert desk.workers == [others[0], others[1]]
    assert questions.redrawn(desk, case).keys() == before
    workshop.desk(LONG, Device.CPU)
    assert desk.workers == [others[0]]
    assert others[1].ended
    assert workshop.desk(SHORT, Device.CPU) is desk
    assert questions.redrawn(desk, case).keys() == before


@pytest.mark.gpu
def test_on_a_gpu_each_candidate_has_a_reference_like_it():
    problem = selftest.problems(Device.CUDA, LONG)[0]
    with Workshop() as shop:
        desk = shop.desk(problem, Device.CUDA)
        for _ in range(4):
            with shop.candidate(selftest.itself(problem), Device.CUDA) as candidate:
                shop.align(desk, candidate, desk.case("full"), QUICK)
                ours, theirs = desk.worker.launch_ms, candidate.worker.launch_ms
                assert 0.0005 < theirs < 0.01
                assert ours == pytest.approx(theirs, rel=QUICK.alike)
