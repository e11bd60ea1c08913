"""Many products of a small case are one job, and each is as in a job of its own."""

import weakref

import pytest
import torch

from grader.grading.candidate import vjp
from grader.grading.resources import Resources
from grader.protocol import Backward
from grader.verdict.models import Device
from tests import samples

RAISES_WHERE_X_IS_FROZEN = """
import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        if not ctx.needs_input_grad[0]:
            raise ValueError("no x")
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return Scale.apply(x, self.weight)
"""


@pytest.fixture(scope="module")
def asked():
    with Resources() as resources:
        case = resources.oracle(samples.problem(), Device.CPU).case("full", draw=1)
        submission = samples.submission(source=RAISES_WHERE_X_IS_FROZEN)
        with resources.candidate(submission, Device.CPU) as candidate:
            candidate.prepare(case)
            yield candidate, case


def jobs(candidate, monkeypatch):
    """Those with a backward, as it goes."""
    seen, run = [], candidate.worker.run

    def watched(steps, *rest, **more):
        seen.extend([steps] if any(isinstance(step, Backward) for step in steps) else [])
        return run(steps, *rest, **more)

    monkeypatch.setattr(candidate.worker, "run", watched)
    return seen


@pytest.mark.parametrize("light", [True, False])
def test_each_is_what_it_would_be_alone(asked, monkeypatch, light):
    candidate, case = asked
    if not light:
        monkeypatch.setattr(vjp, "CHECK_BYTES", 0)
    (g,) = case.cotangents.values()
    hows = [{"cotangents": dict.fromkeys(case.cotangents, factor * g)} for factor in (1.0, 0.0, 2.0)]
    hows.append({"frozen": ("weight",)})
    parts = [vjp.one_product(candidate, case, **how) for how in hows]
    seen = jobs(candidate, monkeypatch)
    found = [vjp.product(candidate, case, *answer).gradients for answer in vjp.attempt_each(candidate, parts, "?")]
    assert len(seen) == (1 if light else 4)
    x, weight = case.inputs[0], case.state["weight"]
    for gradients, factor in zip(found, (1.0, 0.0, 2.0, 1.0), strict=True):
        assert torch.equal(gradients["input[0]"], factor * g * weight)
    assert torch.allclose(found[2]["weight"], (2.0 * g * x).sum(0))
    assert found[3]["weight"] is None


@pytest.mark.parametrize("limit", [None, "CHECK_BYTES", "MAX_SHARED_GRADIENTS"])
def test_parts_before_one_that_raises_are_answered_and_none_after_it(asked, monkeypatch, limit):
    candidate, case = asked
    if limit is not None:
        monkeypatch.setattr(vjp, limit, 0)
    parts = [vjp.one_product(candidate, case, frozen=frozen) for frozen in ((), ("input[0]",), ())]
    seen = jobs(candidate, monkeypatch)
    found = list(vjp.attempt_each(candidate, parts, "?"))
    assert len(seen) == (1 if limit is None else 2)
    assert [answer.result.failure and answer.result.failure.text for answer in found] == [None, "no x"]
    assert vjp.product(candidate, case, *found[0]).gradients["weight"] is not None


def test_large_grad_outputs_are_made_one_after_the_other(asked, monkeypatch):
    candidate, case = asked
    monkeypatch.setattr(vjp, "CHECK_BYTES", 0)
    made, alive = [], []

    def given():
        alive.append(sum(one() is not None for one in made))
        values = {name: value * 2 for name, value in case.cotangents.items()}
        made.extend(weakref.ref(value) for value in values.values())
        return values

    answers = list(vjp.attempt_each(candidate, [vjp.one_product(candidate, case, given=given)] * 3, "asking"))
    assert [answer.result.failure for answer in answers] == [None] * 3
    assert alive == [0, 0, 0]
