"""Rounding near a non-smooth point is accepted in the elements that it affects, and in no others."""

from dataclasses import replace

import pytest
import torch

from grader.catalog.problems import find_problems
from grader.grading.compare import nonsmooth, tolerance
from grader.grading.compare.blocks import LARGE_BYTES
from grader.grading.compare.expected import Expected
from grader.grading.oracle.evaluation import MODEL, Evaluation, Pass
from grader.grading.oracle.trackers import Trackers
from grader.grading.oracle.values import perturbed, perturbed_state
from grader.grading.resources import Resources
from grader.verdict.models import Device

ULPS = 16.0
"""Relative noise on inputs in units of float32's epsilon, which moves results about as much as a Winograd
convolution."""
USUAL = 1e-5
"""Relative error of eager runs that met no non-smooth point is at most 2.8e-6; of others, mostly above 1e-4."""


@pytest.fixture(scope="module")
def resources():
    with Resources() as resources:
        yield resources


def passes(expected, value):
    return tolerance.check(expected, value).status == "passed"


def flipped(resources, problem, variant, operand):
    """(expected, a right gradient that fails with the baseline error alone); its eager runs met no non-smooth point."""
    oracle = resources.oracle(find_problems().problem(problem), Device.CPU)
    for draw in range(60):
        case = oracle.case(variant, draw=draw)
        expected = case.gradients[operand]
        if expected.error_l2 > USUAL * expected.norm:
            continue
        for _ in range(4):
            moved = perturbed(case.inputs, ULPS), perturbed_state(case.state, ULPS)
            run = next(oracle.ask(case, [Pass(MODEL, *moved, case.cotangents, case.wrt, case.training)]))
            if not passes(replace(expected, spread=None), run.gradients[operand]):
                return expected, run.gradients[operand]
    raise AssertionError("no draw has one")


@pytest.mark.parametrize(
    ("problem", "variant", "operand"),
    [
        ("conv2d_mul_leaky_relu_gelu", "cpu", "input[0]"),
        ("conv2d_mul_leaky_relu_gelu", "cpu", "conv.weight"),
        ("conv_transpose3d_leaky_relu_mul_leaky_relu_max", "cpu", "input[0]"),
    ],
)
def test_another_branch_at_a_non_smooth_point_is_right_and_other_errors_are_not(resources, problem, variant, operand):
    expected, found = flipped(resources, problem, variant, operand)
    assert passes(expected, found)
    exact, rms = expected.reference64, float(expected.reference64.square().mean().sqrt())
    assert not passes(expected, found * (1 + 3e-4 * torch.randn_like(found))), "a narrower type, everywhere"
    smooth = nonsmooth.allowance(expected.spread(), 1e-5 * (rms + exact.abs())) == 0
    assert smooth.float().mean() > 0.5
    for position in smooth.flatten().nonzero().flatten()[:: int(smooth.sum()) // 10].tolist():
        other = found.clone()
        other.view(-1)[position] += 0.3 * rms
        assert not passes(expected, other), "an element away from non-smooth points"


def test_a_flip_stands_out_from_usual_rounding():
    spread = 1e-6 * (1 + torch.rand(1000, dtype=torch.float64))
    spread[7] = 0.5
    allowance = nonsmooth.allowance(spread, torch.full_like(spread, 1e-5))
    assert allowance[7] == nonsmooth.FACTOR * 0.5
    assert allowance.count_nonzero() == 1
    assert nonsmooth.allowance(spread * 100, torch.full_like(spread, 1e-5)).count_nonzero() == 1, "whatever is usual"
    assert nonsmooth.allowance(torch.ones_like(spread), torch.full_like(spread, 1e-5)).count_nonzero() == 0, "all alike"


def test_a_non_smooth_point_of_the_candidate_does_not_excuse_errors_elsewhere():
    reference64 = torch.randn(1000, dtype=torch.float64)
    spread = torch.full((1000,), 1e-7, dtype=torch.float64)
    spread[7], spread[9] = 0.5, 1.5
    expected = Expected(
        "y", (1000,), torch.float32, reference64, error_l2=0.5, error_max=0.5, spread=lambda runs=16: spread
    )
    right = reference64.float()
    right[9] += 5
    assert not passes(replace(expected, spread=None), right)
    assert passes(expected, right)
    assert not passes(expected, right * (1 + 1e-3 * torch.randn(1000)))


def test_rounding_that_no_larger_noise_makes_larger_is_right():
    """The gradient in front of a norm is 0 for a constant grad_output: runs on noisier values leave as little of it."""
    sizes = torch.where(torch.arange(1000) % 2 == 0, 1e-7, 1e-6).double()
    noise = Expected(
        "g",
        (1000,),
        torch.float32,
        torch.zeros(1000, dtype=torch.float64),
        error_l2=float(sizes.norm()),
        error_max=1e-6,
        spread=lambda runs=16: 1.2 * sizes,
        eager_error=lambda: sizes,
    )
    assert passes(noise, sizes.float())
    assert not passes(noise, sizes.float() + 1e-5)
    hidden = replace(noise, error_l2=1.0, error_max=1.0)  # by one element at a non-smooth point
    assert not passes(hidden, sizes.float() + 1e-5)


def test_tensors_that_may_wait_in_host_memory_have_no_spread():
    """They wait in float32, which has half as many bytes as float64."""

    def again(count, ulps):
        raise AssertionError("no test needs it")

    for count, spreads in ((LARGE_BYTES // 8, False), (nonsmooth.MAX_ELEMENTS - 1, True)):
        eager = Evaluation({"y": torch.ones(count)}, {}, {})
        trackers = Trackers(eager, eager, has_float64=True, again=again)
        assert (trackers.expected("outputs", lambda _: 1.0)["y"].spread is not None) is spreads


def test_all_of_a_few_elements_may_be_affected():
    spread = torch.full((4,), 1e-3, dtype=torch.float64)
    assert (nonsmooth.allowance(spread, torch.full_like(spread, 1e-5)) == nonsmooth.FACTOR * 1e-3).all()


def test_runs_are_made_only_when_they_may_decide():
    reference64 = torch.randn(100, dtype=torch.float64)
    calls = []

    def spread(runs=16):
        calls.append(runs)
        return torch.zeros_like(reference64)

    expected = Expected("y", (100,), torch.float32, reference64, spread=spread)
    assert passes(expected, reference64.float())
    assert not passes(expected, reference64.float() + 1e-3), "wrong throughout"
    assert not calls
    other = reference64.float()
    other[3] += 1e-3
    assert not passes(expected, other)
    assert calls == [4, 16], "more only if few explain nothing"
    explained = Expected("y", (100,), torch.float32, reference64, spread=lambda runs=16: calls.append(runs) or moved)
    moved = torch.zeros_like(reference64)
    moved[3] = 1e-3
    assert passes(explained, other)
    assert set(calls[2:]) == {4}


def test_integers_may_differ_where_rounding_decides_them():
    reference64 = torch.arange(10)
    spread = torch.zeros(10, dtype=torch.float64)
    spread[3] = 1
    expected = Expected("y", (10,), torch.int64, reference64, spread=lambda runs=16: spread)
    other = reference64.clone()
    other[3] = 7
    assert passes(expected, other)
    other[4] = 7
    assert not passes(expected, other)


def test_the_tolerance_moves_to_other_values_without_the_spread():
    reference64 = torch.randn(100, dtype=torch.float64)
    expected = Expected("y", (100,), torch.float32, reference64, error_l2=1e-6, spread=lambda runs=16: reference64)
    other = expected.around(reference64 + 1)
    assert other.spread is None
    assert (other.error_l2, other.name) == (1e-6, "y")
