"""Workers that start ahead of need do not disturb a timing."""

import contextlib
import gc
import time
import weakref
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from grader.errors import SandboxError
from grader.executor.launcher import Role
from grader.executor.process_table import CPU_CLOCK, tree
from grader.grading.messages import diagnose
from grader.grading.pipeline import Pipeline
from grader.grading.resources import Resources
from grader.grading.selftest import itself
from grader.grading.stopped import Stopped
from grader.grading.timing import pair as pair_module
from grader.grading.timing.calls import Caller, NotQueued
from grader.grading.timing.draws import Draws
from grader.grading.timing.judge import in_turn_if_short, judge_timing
from grader.grading.timing.pair import WorkerPair
from grader.grading.timing.stopping import QUICK
from grader.options import GraderOptions
from grader.verdict.models import Device
from tests import samples


def cpu_seconds(launcher):
    """By pid: of all processes of the spares."""
    spares = launcher._spares[Role.RUN, Device.CPU]
    pids = [pid for spare in spares for pid in tree(spare.result()._process.roots)]
    return {pid: time.clock_gettime(~pid << 3 | CPU_CLOCK) for pid in pids}


def test_spares_stand_still_while_they_start_and_start_all_the_same():
    with Pipeline(GraderOptions(device="cpu")) as grader:
        launcher = grader.resources.launcher
        launcher.prepare(Role.RUN, Device.CPU, 2)
        with launcher.quiet(Device.CPU):
            time.sleep(0.05)
            before = cpu_seconds(launcher)
            assert len(before) >= 2 * 2
            time.sleep(0.2)
            assert cpu_seconds(launcher) == before
        for _ in range(2):
            with launcher.take(Role.RUN, Device.CPU) as worker:
                worker.wait_ready()


def test_a_spare_that_died_is_no_hindrance():
    with Pipeline(GraderOptions(device="cpu")) as grader:
        launcher = grader.resources.launcher
        launcher.prepare(Role.RUN, Device.CPU)
        launcher._spares[Role.RUN, Device.CPU][0].result()._process.kill()
        with launcher.quiet(Device.CPU):
            pass
        with launcher.take(Role.RUN, Device.CPU) as worker:
            worker.wait_ready()


def test_nor_is_one_that_could_not_start(monkeypatch):
    with Pipeline(GraderOptions(device="cpu")) as grader:
        launcher = grader.resources.launcher
        with monkeypatch.context() as broken:
            broken.setattr(launcher, "start", refuse)
            launcher.prepare(Role.RUN, Device.CPU)
            with launcher.quiet(Device.CPU):
                assert not launcher._spares[Role.RUN, Device.CPU]
        with launcher.take(Role.RUN, Device.CPU) as worker:
            worker.wait_ready()


def refuse(role, device):
    raise SandboxError("no room")


def test_where_memory_runs_out_although_both_seemed_to_fit_they_take_turns(monkeypatch):
    problem = samples.problem(source=samples.PROBLEM_SOURCE)
    with Resources() as resources, resources.candidate(itself(problem), Device.CPU) as candidate:
        oracle = resources.oracle(problem, Device.CPU)
        case, tried = oracle.case("full"), []

        def timed(*, in_turn):
            tried.append(in_turn)
            with WorkerPair(candidate, oracle, case, tf32=False, in_turn=in_turn) as pair:
                if not in_turn:
                    raise Stopped(diagnose("out_of_memory", "CUDA out of memory", remedy="use less"))
                return pair.time_pair({"inference": 1, "training": 1}, True)

        reference, ours, wrong = in_turn_if_short(candidate, oracle, timed)
    assert (tried, wrong) == ([False, True], None)
    assert set(reference) == set(ours) == {"inference", "forward", "backward"}


@pytest.mark.parametrize("missed", [False, True])
def test_in_turn_a_side_gives_its_memory_back_before_the_other_is_called(monkeypatch, missed):
    problem, seen = samples.problem(source=samples.PROBLEM_SOURCE), []
    called, gave_back = Caller.calls, Caller.give_back

    def calls(self, which, *args, **how):
        seen.append(f"call {which}")
        if missed and len(seen) == 1:
            raise NotQueued(reference=True)
        return called(self, which, *args, **how)

    def give_back(self, which):
        seen.append(f"give back {which}")
        gave_back(self, which)

    monkeypatch.setattr(Caller, "calls", calls)
    monkeypatch.setattr(Caller, "give_back", give_back)
    with Resources() as resources, resources.candidate(itself(problem), Device.CPU) as candidate:
        oracle = resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        with WorkerPair(candidate, oracle, case, tf32=False, in_turn=True) as pair:
            with pytest.raises(NotQueued) if missed else nullcontext():
                pair.time_pair({"training": 1}, True)
            assert pair.reference_first() is missed, "the side that was called last holds the memory"
            pair.time_pair({"training": 1}, pair.reference_first())
        with contextlib.suppress(KeyError), WorkerPair(candidate, oracle, case, tf32=False, in_turn=True) as pair:
            pair.time_pair({"inference": 1}, True)
            raise KeyError
    assert seen.pop() == "give back candidate", "whatever ends it"
    if missed:
        first = ["call reference", "call reference", "give back reference", "call candidate", "give back candidate"]
        assert seen[:-3] == first, "the first miss says enough"
    else:
        one, other = (
            ["call reference", "give back reference"],
            ["call candidate", "call candidate", "give back candidate"],
        )
        assert seen[:-3] == [*one, *other, *one]


@pytest.mark.parametrize(
    ("free_gib", "in_turn", "repeat", "together"),
    [(2.5, False, True, True), (1.5, True, True, True), (1.5, True, False, False)],
)
def test_the_sides_take_turns_where_one_fits_and_phases_share_a_sample_unless_values_have_to_be_kept(
    monkeypatch, free_gib, in_turn, repeat, together
):
    own = SimpleNamespace(own_memory=True, allocatable_bytes=lambda: int(free_gib * 2**30))
    problem = samples.problem(source=samples.PROBLEM_SOURCE)
    with Resources() as resources, resources.candidate(itself(problem), Device.CPU) as candidate:
        oracle = resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        oracle.process.worker.peak_device_bytes = candidate.worker.peak_device_bytes = 1 << 30
        monkeypatch.setattr(pair_module, "backend", lambda _: own)
        monkeypatch.setattr(Draws, "repeat", repeat)
        pair = WorkerPair(candidate, oracle, case, tf32=False)
        assert (pair._in_turn, pair.together) == (in_turn, together)


def test_a_call_that_could_not_be_queued_leaves_nothing_of_its_values(monkeypatch):
    problem, drawn = samples.problem(source=samples.PROBLEM_SOURCE), []

    def draw(self, *args, **how):
        values = made(self, *args, **how)
        drawn.append(weakref.ref(values))
        return values

    def calls(self, index, *args, **how):
        raise NotQueued(reference=True)

    made = Draws._draw
    monkeypatch.setattr(Draws, "_draw", draw)
    monkeypatch.setattr(Caller, "calls", calls)
    with Resources() as resources, resources.candidate(itself(problem), Device.CPU) as candidate:
        oracle = resources.oracle(problem, Device.CPU)
        with WorkerPair(candidate, oracle, oracle.case("full"), tf32=False) as pair:
            gc.disable()  # gigabytes must not wait for the cyclic collector
            try:
                with contextlib.suppress(NotQueued):
                    pair.time_pair({"training": 1}, True)
                assert [ref() for ref in drawn] == [None]
            finally:
                gc.enable()


@pytest.mark.parametrize("reference_first", [True, False])
def test_in_turn_no_values_wait_for_the_second_side_and_results_go_call_by_call(monkeypatch, reference_first):
    problem, alive, most = samples.problem(source=samples.PROBLEM_SOURCE), [], []
    draw, on_host = Draws._draw, Caller._on_host

    def drawn(self, *args, **how):
        values = draw(self, *args, **how)
        alive.append(weakref.ref(values))
        return values

    def called(self, index, phase, source, **how):
        most.append(sum(ref() is not None for ref in alive))
        call = on_host(self, index, phase, source, **how)
        alive.extend(weakref.ref(value) for value in call.sealed.values())
        return call

    monkeypatch.setattr(Draws, "_draw", drawn)
    monkeypatch.setattr(Caller, "_on_host", called)
    with Resources() as resources, resources.candidate(itself(problem), Device.CPU) as candidate:
        oracle = resources.oracle(problem, Device.CPU)
        case = oracle.case("full")
        with WorkerPair(candidate, oracle, case, tf32=False, in_turn=True) as pair:
            *_, wrong = pair.time_pair({"inference": 1, "training": 1}, reference_first)
    training = len(case.outputs) + len(case.wrt)
    assert wrong is None
    assert most == [0, 1, 1 + training, training], "of both sides' results, and no draw"


@pytest.mark.parametrize("code", ["crashed", "out_of_memory"])
def test_what_goes_wrong_again_or_for_another_reason_is_raised(code):
    tried = []
    side = SimpleNamespace(release=lambda *stage: None)

    def timed(*, in_turn):
        tried.append(in_turn)
        raise Stopped(diagnose(code, "it failed", remedy="mend it"))

    with pytest.raises(Stopped):
        in_turn_if_short(side, side, timed)
    assert tried == ([False, True] if code == "out_of_memory" else [False])


def test_the_warm_up_goes_on_while_others_come_to_rest(monkeypatch):
    seen = []
    pair = WorkerPair.time_pair

    def watched(*args, **options):
        seen.append("pair")
        return pair(*args, **options)

    @contextmanager
    def quiet():
        seen.append("quiet")
        yield
        seen.append("over")

    monkeypatch.setattr(WorkerPair, "time_pair", watched)
    problem = samples.problem(source=samples.PROBLEM_SOURCE)
    with Resources() as resources, resources.candidate(itself(problem), Device.CPU) as candidate:
        oracle = resources.oracle(problem, Device.CPU)
        judge_timing(candidate, oracle, oracle.case("full"), QUICK, pace_apart=0.0, quiet=quiet)
    begun = seen.index("quiet")
    assert begun in (1, 2), "both phases, once or, if a first call was short, twice"
    assert seen[-1] == "over"
    assert seen[begun + 1 : -1] == ["pair"] * (len(seen) - begun - 2)
