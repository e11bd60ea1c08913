"""Do equal calls give equal gradients, and two backwards into the same .grad add up?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.backward.experiments._conditions_common import Cases, first_wrong, plain_is_right
from grader.grading.backward.vjp import add_forward, attempt_each, export_gradients, product
from grader.grading.candidate import Candidate
from grader.grading.compare.blocks import reals
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose, first_line
from grader.verdict.models import Diagnosis

NOT_RETAINED = "donated buffers"
"""Of PyTorch's message: what torch.compile made keeps no graph, whatever is asked of it."""
CARRIED_SHARE = 1e-3
"""Two equal calls that differ by more than this share something other than rounding."""


def accumulation_broken(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Equal calls give equal gradients, whatever ran before them, and two backwards into the same .grad add up."""
    case = cases.first
    carried = carried_over(candidate, case)
    if carried is not None or not plain_is_right(candidate, case):
        return carried
    return _not_added(candidate, case) or _not_repeatable(candidate, case) or _overwritten(candidate, case)


def carried_over(candidate: Candidate, case: Case) -> Diagnosis | None:
    """What an earlier call left shows in a later one: asked twice, then for a grad_output of zeros, then once more."""
    if not case.values_comparable:
        return None
    zero = {name: torch.zeros_like(value) for name, value in case.cotangents.items()}
    hows = [{"cotangents": cotangents} for cotangents in (case.cotangents, case.cotangents, zero, case.cotangents)]
    asked = list(attempt_each(candidate, case, hows, "repeating the backward"))
    if asked[-1][0].failure is not None:
        return None
    products = [product(candidate, case, finding, key).gradients for finding, key in asked]
    for name in case.wrt:
        first, second, left, last = (gradients[name] for gradients in products)
        if first is None or second is None or left is None or last is None:
            continue
        operand = case.operand_names[name]
        change = _change(first, second)
        if change > CARRIED_SHARE and bool(left.any()):
            return diagnose(
                "accumulation_broken",
                f"gradient of `{operand}` changes by {change:.2g} of its size when the same backward is repeated, and "
                "is not zero for a grad_output of zeros: zero the buffer that backward adds to, or return a fresh "
                "tensor from each backward",
            )
        change = max(change, _change(first, last))
        if change > CARRIED_SHARE and _any_wrong(candidate, case, [asked[0], asked[1], asked[3]]):
            return diagnose(
                "nondeterministic_grad",
                f"gradient of `{operand}` changes by {change:.2g} of its size between equal calls, far more than "
                "rounding does: look for a missing __syncthreads(), a race between threads, or memory that is read "
                "before it is written",
            )
    return None


def _any_wrong(candidate: Candidate, case: Case, found: Sequence[tuple[JobResult, str]]) -> bool:
    """Where a gradient is zero but for rounding, all of it may change, and yet each is right."""
    return any(first_wrong(candidate, case, finding, key=key) is not None for finding, key in found)


def _change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Relative to the size before, in the Euclidean norm; NaN, which no comparison holds for, where either has one."""
    distance = float(torch.linalg.vector_norm(reals(after) - reals(before)))
    return distance / max(float(torch.linalg.vector_norm(reals(before))), 1e-300)


def _overwritten(candidate: Candidate, case: Case) -> Diagnosis | None:
    """What one backward returned is still right after the next two: they do not share a buffer, or two in turn."""
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=True)
    wrt = tuple(candidate.operands(case).values())
    halves = {name: -0.5 * value for name, value in case.cotangents.items()}
    given = {"a": case.cotangents, "b": halves, "c": halves}
    for tape in given:
        add_forward(script, case, "a", tape=tape)
    for tape, cotangents in given.items():
        script.step(p.Backward(tape=tape, grads=tape, cotangents=script.cotangents(cotangents), wrt=wrt))
    export_gradients(script, candidate, case, "a", case.wrt)
    finding = candidate.attempt(script, "backward", "keeping one backward's gradients during the next")
    operand = None if finding.failure is not None else first_wrong(candidate, case, finding)
    if operand is None:
        return None
    return diagnose(
        "accumulation_broken",
        f"the next backward overwrites the gradient of `{operand}` that the one before returned: "
        "return a fresh tensor from each backward, not a buffer that is kept",
    )


def _not_added(candidate: Candidate, case: Case) -> Diagnosis | None:
    finding = _twice(candidate, case, "two backwards into the same .grad", retained=False)
    if finding.failure is not None:
        return diagnose("accumulation_broken", f"a second backward raises {first_line(finding.failure)}")
    operand = first_wrong(candidate, case, finding, key="sum", factor=2.0)
    if operand is None:
        return None
    return diagnose(
        "accumulation_broken",
        f"two backwards into the same .grad do not add up for `{operand}`: "
        "return a fresh tensor from each backward, not a buffer that is kept",
    )


def _not_repeatable(candidate: Candidate, case: Case) -> Diagnosis | None:
    finding = _twice(candidate, case, "a second backward through a retained graph", retained=True)
    if finding.failure is not None:
        if NOT_RETAINED in finding.failure.text:
            return None
        return diagnose(
            "accumulation_broken",
            f"a second backward through a retained graph raises {first_line(finding.failure)}: keep what it needs "
            "with ctx.save_for_backward, and drop nothing in backward",
        )
    operand = first_wrong(candidate, case, finding, key="sum", factor=2.0)
    if operand is None:
        return None
    return diagnose(
        "accumulation_broken",
        f"a second backward through a retained graph gives another gradient of `{operand}`: "
        "do not write into what forward saved",
    )


def _twice(candidate: Candidate, case: Case, doing: str, *, retained: bool) -> JobResult:
    """Two backwards into the same .grad, through one `retained` graph or through one each.

    The second gets -1/2 of the first's grad_output, which leaves half.
    """
    script, wrt = candidate.script(case), tuple(candidate.operands(case).values())
    script.put_inputs("a", case.inputs, requires_grad=True)

    def backward(cotangents: Mapping[str, torch.Tensor], into: Literal["fresh", "add"], retain: bool) -> None:
        given = script.cotangents(cotangents)
        script.step(p.Backward(tape="a", grads="sum", cotangents=given, wrt=wrt, into=into, retain_graph=retain))

    add_forward(script, case, "a")
    backward(case.cotangents, "fresh", retain=retained)
    if not retained:
        add_forward(script, case, "a")
    backward({name: -0.5 * value for name, value in case.cotangents.items()}, "add", retain=False)
    export_gradients(script, candidate, case, "sum", case.wrt)
    return candidate.attempt(script, "backward", doing)
