"""The time of a grading is divided over its stages; checks beyond it are drawn, and essential ones always run."""

import itertools
import math
import time
from types import SimpleNamespace

import pytest
import torch

from grader import Grader, GraderOptions
from grader.grading import plan
from grader.grading.backward import other_inputs as gradients_of_others
from grader.grading.backward.experiments import experiments
from grader.grading.backward.run_experiments import FEWEST
from grader.grading.budget import TRIES, Budget, Drawn, Stopwatch, left_out
from grader.grading.candidate.candidate import Candidate
from grader.grading.forward.probes import INFORMATION, probe_codes
from grader.grading.oracle import other_inputs
from grader.grading.oracle.case import Answers
from grader.grading.pipeline import Pipeline
from grader.grading.resources import Resources
from grader.verdict.models import Device, Status
from tests import expected as cases
from tests import samples

CHECKS = "abcdefgh"
PROBLEM = "two_linears"


def clock(*readings):
    return iter(readings).__next__


def test_the_seconds_are_those_of_the_option_or_of_its_mode():
    assert GraderOptions(quick=True).budget == 3.0
    assert GraderOptions().budget == 15.0
    assert GraderOptions(quick=True, seconds=7.5).budget == 7.5
    assert Budget(6.0).stage_seconds == 2.0


def run(*arguments, ticks, **options):
    """(the checks that are run, those that are left out) by a clock with these readings."""
    drawn = Drawn(CHECKS, *arguments, clock(*ticks), **options)
    return list(drawn), drawn.left_out


def test_all_checks_run_in_their_order_where_they_should_fit():
    assert run(0.1, 0.8, ticks=[0.0]) == (list(CHECKS), [])


def test_what_should_fit_is_drawn_and_keeps_its_order():
    drawn = [run(0.1, 0.35, ticks=[0.0, 1.0]) for _ in range(300)]
    assert {len(one) for one, _ in drawn} == {3}
    assert all(one == sorted(one) for one, _ in drawn)
    assert {check for one, _ in drawn for check in one} == set(CHECKS)
    assert all(sorted(one + others) == list(CHECKS) for one, others in drawn)
    assert len(run(100.0, 1.0, fewest=2, ticks=[0.0, 9.0])[0]) == 2


def test_others_follow_at_random_while_there_is_time():
    drawn = [run(0.1, 0.35, ticks=[0.0, 0.1, 0.2, 0.3, 0.4]) for _ in range(300)]
    assert {(len(one), len(others)) for one, others in drawn} == {(6, 2)}
    assert {check for _, others in drawn for check in others} == set(CHECKS)


def test_a_check_of_a_larger_weight_is_drawn_more_often_and_not_always():
    drawn = [run(0.1, 0.35, ticks=[0.0, 1.0], weights=[4, *[1] * 7])[0] for _ in range(2000)]
    count = {check: sum(check in one for one in drawn) for check in CHECKS}
    assert 1400 < count["a"] < 1800  # expected 1575 by a simulation, standard deviation 18
    assert all(500 < count[check] < 800 for check in CHECKS[1:])


def test_a_slow_first_call_is_repeated_before_it_counts():
    watch = Stopwatch(clock(0.0, 9.0, 10.0, 10.5, 20.0))
    with watch.of("small"):
        pass
    calls = []
    assert watch.steady("small", 1.0, lambda: calls.append(1)) == 0.5
    assert len(calls) == 1


def test_a_call_that_stays_slow_is_repeated_a_few_times_only():
    readings = itertools.count(step=5.0)
    calls = []
    assert Stopwatch(readings.__next__).steady("small", 1.0, lambda: calls.append(1)) == 5.0
    assert len(calls) == TRIES


def test_what_is_left_out_is_named_with_the_reason():
    (diagnosis,) = left_out("post-checks", ["stale_saved_state"], 2.0)
    assert (diagnosis.code, diagnosis.severity) == ("checks_left_out", "info")
    assert "time was too short for the post-checks stale_saved_state" in diagnosis.message
    assert "2 s" in diagnosis.message
    assert left_out("post-checks", [], 2.0) == []


SOURCE = (cases.CASES / "honest_plain" / f"{PROBLEM}.py").read_text()
LAST = "return self.down(torch.tanh(self.up(x)))"
SCALES_GRADIENTS = """
class Scaled(torch.autograd.Function):
    forward = staticmethod(lambda ctx, y: y.clone())
    backward = staticmethod(lambda ctx, grad: 1.01 * grad)
"""


def graded(source, problem=PROBLEM, **options):
    submission = samples.submission(problem_id=problem, source=source)
    with Pipeline(GraderOptions(**{"device": "cpu", "quick": True, "variant": "small", **options})) as pipeline:
        return pipeline.grade(pipeline.request(cases.problem(problem), submission))


def notes(verdict):
    return " ".join(diagnosis.message for diagnosis in verdict.diagnoses if diagnosis.code == "checks_left_out")


@pytest.mark.alone
def test_a_small_problem_loses_no_check_by_default():
    verdict = graded(SOURCE)
    assert (verdict.status, notes(verdict)) == ("correct", "")
    # In the experiments' order only where a plain call was fast enough that all were expected to fit.
    assert sorted(verdict.backward.experiments) == sorted(one.code for one in experiments("post-check", "train"))


def test_what_time_is_too_short_for_is_in_the_verdict(monkeypatch):
    # Its own clock stands still where grader and worker wait for a core at once, and one more check may begin.
    monkeypatch.setattr(Candidate, "clock", lambda self: time.monotonic())
    verdict = graded(SOURCE, seconds=1e-6)
    assert verdict.status == "correct"
    left = notes(verdict)
    probes = left.partition("the forward's probes ")[2].partition(", which")[0]  # a post-check may have a probe's code
    assert sum(code in probes for code in probe_codes()) == len(probe_codes()) - 1 - len(INFORMATION)
    assert "strided inputs were left out" in left
    post_checks = [one.code for one in experiments("post-check", "train") if one.code not in INFORMATION]
    assert len(verdict.backward.experiments) == FEWEST < len(post_checks)
    assert all(code in left for code in set(post_checks) - set(verdict.backward.experiments))
    assert "so that each size has one draw" in left


def test_a_submission_that_starts_slowly_is_judged_in_one_size_between_the_first_and_the_timed_one():
    problem = "conv2d_mul_leaky_relu_gelu"
    source = cases.problem(problem).source.replace("class Model(", "class ModelNew(")
    verdict = graded(source, problem, seconds=1e-6, variant=None)
    assert verdict.status == "correct", verdict.diagnoses
    judged = {one.variant.partition(" ")[0] for one in verdict.forward.variants}
    assert judged == {one.variant.partition(" ")[0] for one in verdict.backward.variants}
    (left,) = {"odd", "batch1"} - judged
    assert judged == {"small", "odd", "batch1", "cpu"} - {left}
    assert f"the size `{left}`, drawn at random, and strided inputs were left out" in notes(verdict)


@pytest.mark.parametrize(
    ("returned", "status"),
    [
        (LAST.replace("return", "return 1.01 *"), "wrong_output"),
        (f"{LAST}.detach()", "missing_backward"),
        (LAST.replace("return ", "return Scaled.apply(") + ")", "wrong_backward"),
    ],
)
def test_the_essential_checks_run_however_short_the_time(returned, status):
    source = SOURCE.replace("class ModelNew", f"{SCALES_GRADIENTS}\n\nclass ModelNew").replace(LAST, returned)
    assert graded(source, seconds=1e-6).status == status


def test_any_time_may_be_given():
    source = (cases.CASES / "forward_output_distribution" / "honest.py").read_text()
    with Grader(device="cpu", quick=True, seconds=math.inf) as grader:
        assert grader.grade(problem=cases.problem("dropout_branch"), source=source).status is Status.CORRECT


def test_other_inputs_that_are_too_large_to_ask_are_named(monkeypatch):
    assert "these other inputs" not in notes(graded(SOURCE, seconds=cases.AMPLE_SECONDS))
    monkeypatch.setattr(other_inputs, "CHECK_BYTES", 10_000)
    seen = notes(graded(SOURCE, seconds=cases.AMPLE_SECONDS))
    assert "no room for copies of these other inputs, chosen at random: " in seen
    assert "parameters multiplied by 100" in seen
    assert "no room for gradients of these other inputs, chosen at random: " in seen


NORMED_SOFTMAX = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(200, 100, bias=False)
        self.norm = nn.LayerNorm(100)

    def forward(self, x):
        return torch.softmax(self.norm(self.linear(x)), -1)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.rand(8, 200)]
"""


def test_of_large_parameters_the_smaller_ones_are_changed(monkeypatch):
    monkeypatch.setattr(other_inputs, "CHECK_BYTES", 20_000)
    with Resources() as resources:
        oracle = resources.oracle(samples.problem(source=NORMED_SOFTMAX), Device.CPU)
        case = oracle.case("full")
        large = [
            other.case.state
            for other in other_inputs.other_inputs(oracle, case).cases
            if other.change == other_inputs.LARGE_PARAMETERS
        ]
    assert large
    changed = {name for state in large for name in state if not torch.equal(state[name], case.state[name])}
    assert changed == {"norm.weight", "norm.bias"}


@pytest.mark.parametrize(("device", "count"), [(Device.CPU, 4), (Device.CUDA, 40)])
def test_of_large_inputs_as_many_are_drawn_as_there_is_room_for(device, count):
    oracle, kinds = SimpleNamespace(device=device), list(range(40))
    drawn = [other_inputs.drawn_in_room(oracle, 64 << 20, kinds) for _ in range(20)]
    assert all(sorted(set(one)) == one and len(one) == count for one in drawn)
    assert count == 40 or len({tuple(one) for one in drawn}) > 1, "nobody can count on what is left out"


def test_gradients_of_other_inputs_end_with_the_time(monkeypatch):
    now, questions = [0.0], []

    def gradients(oracle, case, others):
        questions.append(len(others))
        now[0] += len(others)
        return [{}] * len(others)

    kinds = tuple(other_inputs.OtherInputs(f"{number:02}", None) for number in range(30))
    monkeypatch.setattr(gradients_of_others, "_gradients", gradients)
    monkeypatch.setattr(gradients_of_others, "other_inputs", lambda *_: other_inputs.Others(kinds, (), ()))
    oracle = SimpleNamespace(budget=Budget(36), clock=lambda: now[0], device=Device.CPU)
    case = SimpleNamespace(nbytes=1, training=True, answers=Answers())
    found = gradients_of_others._with_gradients(oracle, case)
    assert questions == [1, 2], "a twelfth of the time"
    changes = [other.change for other in found.others]
    assert changes == sorted(changes)
    assert sorted([*changes, *found.no_time]) == [kind.change for kind in kinds]


@pytest.mark.parametrize(("device", "large"), [(Device.CPU, True), (Device.CUDA, False)])
def test_a_gpu_has_room_for_more_draws_of_a_case(device, large):
    case = SimpleNamespace(nbytes=512 << 20, state_bytes=256 << 20)
    assert plan.is_large_case(SimpleNamespace(device=device), case) == large


def test_of_inputs_unlike_the_drawn_ones_as_many_are_drawn_as_fit(monkeypatch):
    # A sixth of the time, at 0.025 s each.
    costs = SimpleNamespace(seconds_of=lambda _: 0.03)
    slow = SimpleNamespace(budget=Budget(0.66), exact_seconds=lambda _: 0.02, costs=costs)
    drawn = {tuple(other_inputs._drawn_in_time(slow, None, range(12))) for _ in range(20)}
    assert {len(one) for one in drawn} == {4}
    assert len(drawn) > 10
    slow.budget = Budget(60.0)
    assert other_inputs._drawn_in_time(slow, None, range(12)) == list(range(12))
    monkeypatch.setattr(other_inputs, "_drawn_in_time", lambda oracle, case, kinds: [kinds[3]])
    verdict = graded(SOURCE, seconds=cases.AMPLE_SECONDS)
    assert verdict.status == "correct"
    seen = notes(verdict)
    assert "no time for these other inputs, chosen at random: inputs multiplied by 0.001" in seen
    assert "parameters multiplied by 100" in seen
    monkeypatch.setattr(other_inputs, "_drawn_in_time", lambda oracle, case, kinds: kinds[1:-1])
    seen = notes(graded(SOURCE, seconds=cases.AMPLE_SECONDS))
    assert "no time for these other inputs, chosen at random: inputs multiplied by 0.001 or less" in seen
    assert "parameters multiplied by 100" not in seen, "one of three draws of these is left out"
