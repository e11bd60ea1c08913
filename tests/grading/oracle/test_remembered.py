"""What the reference answered about a case's values says nothing about others."""

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest

from grader.grading.control import reference_passes
from grader.grading.oracle import variations
from grader.grading.oracle.other_inputs import other_inputs
from grader.grading.resources import Resources
from grader.grading.timing.roofline import counted_work
from grader.verdict.models import Device, TimeLimits
from tests.expected import problem


@pytest.fixture(scope="module")
def oracle():
    with Resources() as resources:
        yield resources.oracle(problem("two_linears"), Device.CPU)


def test_a_case_is_asked_once_in_each_mode(oracle):
    case = oracle.case("small")
    assert other_inputs(oracle, case) is other_inputs(oracle, case)
    assert other_inputs(oracle, case.alike(also_in_eval=True)) is other_inputs(oracle, case)
    assert other_inputs(oracle, case.as_eval()) is not other_inputs(oracle, case)


def test_other_values_are_asked_anew(oracle):
    case = oracle.case("small")
    other = replace(case, inputs=tuple(value * 1e-6 for value in case.inputs))
    answers = [other_inputs(oracle, one).cases for one in (other, case)]
    allowed, allowed_usually = (max(one.case.outputs["output"].error_l2 for one in cases) for cases in answers)
    assert allowed != allowed_usually


def test_controls_of_other_values_are_made_anew(oracle):
    case, seen, candidate = oracle.case("small"), [], SimpleNamespace(limits=TimeLimits())
    for one in (case, case, replace(case, inputs=tuple(value + 1 for value in case.inputs))):
        assert reference_passes(candidate, oracle, one, "a check", lambda reference, one=one: seen.append(one))
    assert len(seen) == 2


def test_answers_go_with_their_case(oracle):
    other = replace(oracle.case("small"), inputs=tuple(value + 1 for value in oracle.case("small").inputs))
    gone = weakref.ref(variations.edited(oracle, other))
    del other
    gc.collect()
    assert gone() is None


def test_what_was_counted_stays_for_a_case_whose_values_were_released(oracle):
    """Its bounds are computed after the timed calls, for which values at full size leave the device."""
    case = oracle.case("small")
    counted = counted_work(oracle, case)
    case.release_values()
    oracle.cases.forget("small")
    assert counted_work(oracle, case) is counted


def test_what_was_derived_goes_when_a_variant_is_forgotten(oracle):
    gone = weakref.ref(variations.edited(oracle, oracle.case("small")))
    oracle.cases.forget("small")
    assert gone() is None
