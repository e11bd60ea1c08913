"""The self-test of times: false alarms, planted slowdowns, and its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader.catalog.problems import find_problems
from grader.cli import selftest as command
from grader.grading.selftest import CONVOLUTION, Figure, itself, planted_share, problems, summary
from grader.grading.status import Judged
from grader.verdict.models import Device, Problem
from grader.verdict.stages import FigureTiming, StageStatus, TimingResult

CONV = find_problems(()).problem(CONVOLUTION)


def comparison(verdict, speedup=1.0, planted=0.0):
    return Figure("tiny", 1, planted, "forward", 0.02, speedup, speedup, speedup, verdict)


def test_a_reference_called_different_from_itself_is_a_false_alarm():
    told = summary([comparison("same", 1.002), comparison("faster", 1.05), comparison("inconclusive", 0.99)])
    assert (told["called_faster"], told["called_slower"], told["compared"]) == (1, 0, 3)
    assert told["median_error"] == pytest.approx(0.01)
    assert told["worst_error"] == pytest.approx(0.05)


def test_a_planted_slowdown_is_found_only_if_it_is_called_slower():
    told = summary(
        [comparison("slower", 0.97, planted=0.03), comparison("same", 0.97, planted=0.03), comparison("same")]
    )
    assert (told["planted_found"], told["planted"], told["called_slower"]) == (1, 2, 0)


@pytest.mark.parametrize("problem", problems(Device.CPU, CONV), ids=lambda problem: problem.id)
def test_the_planted_copy_takes_longer_by_its_share(problem, monkeypatch):
    """By a clock that only the waiting moves: nothing else on the machine counts."""
    space = {"__name__": "planted"}
    exec(itself(problem, planted=0.03).source, space)
    ticks = [0.0]

    def clock():
        ticks[0] += 1.0
        return ticks[0]

    monkeypatch.setattr("time.perf_counter", clock)
    make_init, make_inputs = (space.get("get_variants", lambda: {})()).get(
        "small", (space["get_init_inputs"], space["get_inputs"])
    )
    model = space["ModelNew"](*make_init())
    model(*make_inputs())
    # Started at 1; 2 and 3 are read for the end, 2 + 0.03 * (3 - 1); 4 is past it.
    assert ticks[0] == 4.0


class Clock:
    """Stands in for timing, with a fixed verdict."""

    def __init__(self, verdict):
        self._verdict = verdict

    def __call__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def time_alone(self, resources, problem, submission, device, *, training):
        planted = "import time as _time" in submission.source
        phase = FigureTiming(
            candidate_ms=1.0,
            reference_ms=1.0,
            speedup=0.97 if planted else 1.0,
            ci_low=0.96,
            ci_high=1.01,
            rounds=7,
            verdict="slower" if planted else self._verdict,
        )
        result = TimingResult(status=StageStatus.PASSED, forward=phase, backward=phase, total=phase)
        return Judged(result, ())


@pytest.mark.parametrize(("verdict", "code"), [("same", 0), ("inconclusive", 0), ("faster", 1), ("slower", 1)])
def test_the_exit_status_is_1_for_a_false_alarm(verdict, code, monkeypatch, capsys):
    import typer

    clock = Clock(verdict)
    monkeypatch.setattr("grader.grading.resources.Resources", clock)
    monkeypatch.setattr("grader.grading.selftest.time_alone", clock.time_alone)
    status = 0
    try:
        command.selftest(timing=True, runs=2, device=Device.CPU, as_json=True)
    except typer.Exit as exit:
        status = exit.exit_code
    told = json.loads(capsys.readouterr().out)
    assert status == code
    assert len(told["findings"]) == 2 * 3 * 4
    assert (told["summary"]["planted_found"], told["summary"]["planted"]) == (6, 6)


def test_without_a_test_to_run_it_is_a_usage_error():
    ran = subprocess.run(
        [sys.executable, "-m", "grader", "selftest"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (2, "grader: selftest: there is nothing to test; add --timing\n")


def test_problems_differ_in_size_by_device():
    for device in Device:
        tiny, medium, convolution = problems(device, CONV)
        assert (tiny.id, medium.id, convolution.id) == ("tiny", "medium", CONVOLUTION)
        assert isinstance(tiny, Problem)
        assert tiny.source != medium.source
    assert {device: planted_share(device) for device in Device} == {Device.CUDA: 0.03, Device.CPU: 0.15}
