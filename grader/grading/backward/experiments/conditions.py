"""Are the gradients right with operands frozen, on another stream, again, and under random numbers?"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.backward.experiments._conditions_common import Cases, first_wrong
from grader.grading.backward.experiments.accumulation import carried_over
from grader.grading.backward.experiments.grad_outputs import ignores_grad_output
from grader.grading.backward.vjp import ask, attempt_each, product
from grader.grading.candidate import Candidate, export_buffers, names
from grader.grading.compare.outputs import check_buffers, differ, same_bits
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose, first_line
from grader.grading.random.seeded_gradients import check_gradients
from grader.verdict.models import Device, Diagnosis

REPEATS = 5
MAX_NAMED = 8
"""Operands that a message lists."""
MAX_FROZEN_SUBSETS = 48
"""Of more, a third are halves of the operands, drawn at random: one in four freezes one of two and not the other."""
SUBSETS_OF_A_JOB = 12
FROZEN_SECONDS = 20.0
"""Then no other job of subsets follows: torch.compile takes seconds for each that is new to it."""


def ignores_needs_input_grad(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """With some operands frozen, and with all but one, the others' gradients stay right."""
    case = cases.first
    present = [name for name, expected in case.gradients.items() if expected is not None]
    for frozen, finding, key in _with_frozen(candidate, case, _subsets(present)):
        few = len(frozen) <= MAX_NAMED
        shown = names([case.operand_names[name] for name in frozen]) if few else f"{len(frozen)} operands"
        if finding.failure is not None:
            return diagnose(
                "ignores_needs_input_grad",
                f"with {shown} frozen, {first_line(finding.failure)} is raised: check ctx.needs_input_grad",
            )
        operand = first_wrong(candidate, case, finding, key=key, skip=frozen)
        if operand is not None:
            return diagnose(
                "ignores_needs_input_grad",
                f"with {shown} frozen, the gradient of `{operand}` is wrong: check ctx.needs_input_grad",
            )
    return None


def _with_frozen(
    candidate: Candidate, case: Case, subsets: Sequence[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], JobResult, str]]:
    """Each subset with its finding and the key of its gradients, while there is time and none raises."""
    started = time.monotonic()
    for first in range(0, len(subsets), SUBSETS_OF_A_JOB):
        if time.monotonic() - started > FROZEN_SECONDS:
            return
        some = subsets[first : first + SUBSETS_OF_A_JOB]
        hows = [{"frozen": frozen} for frozen in some]
        asked = attempt_each(candidate, case, hows, "backward with some operands frozen")
        for frozen, (finding, key) in zip(some, asked, strict=False):
            yield frozen, finding, key


def _subsets(operands: Sequence[str]) -> list[tuple[str, ...]]:
    """All inputs, all parameters, then in any order each alone, and all but one; of many, some, and random halves."""
    singles = [(name,) for name in operands]
    groups = [tuple(name for name in operands if name.startswith("input[") is inputs) for inputs in (True, False)]
    others = [tuple(name for name in operands if name != left) for left in operands]
    found = [subset for subset in dict.fromkeys([*groups, *singles, *others]) if 0 < len(subset) < len(operands)]
    first, rest = [subset for subset in groups if subset in found], [subset for subset in found if subset not in groups]
    if len(found) > MAX_FROZEN_SUBSETS:
        third = MAX_FROZEN_SUBSETS // 3
        halves = [tuple(random.sample(operands, len(operands) // 2)) for _ in range(third)]
        rest = [*random.sample(rest, 2 * third - len(first)), *halves]
    return [*first, *random.sample(rest, len(rest))]


def buffers_not_updated(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """With all inputs frozen, as those of a first layer, and with all parameters frozen, buffers move all the same."""
    case = cases.first
    if not (case.buffers and case.values_comparable):
        return None
    inputs = tuple(name for name in case.wrt if name.startswith("input["))
    parameters = tuple(name for name in case.wrt if name not in inputs)
    for what, frozen in (("inputs", inputs), ("parameters", parameters)):
        if not frozen or len(frozen) == len(case.wrt):
            continue
        script = ask(candidate, case, frozen=frozen)
        export_buffers(script, candidate, case)
        finding = candidate.attempt(script, "backward", f"backward with all {what} frozen")
        wrong = None if finding.failure else differ(check_buffers(case, finding, candidate.buffers(case)))
        if wrong is not None:
            message = f"with all {what} frozen, {wrong} after one forward and its backward: update it all the same"
            return diagnose("buffers_not_updated", message, stage="backward")
    return None


def wrong_stream(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """On a busy stream of its own, work that goes to another stream reads its inputs too early."""
    if candidate.device is not Device.CUDA:
        return None
    finding = candidate.attempt(ask(candidate, cases.first, side_stream=True), "backward", "running on a side stream")
    operand = None if finding.failure is not None else first_wrong(candidate, cases.first, finding)
    if finding.failure is None and operand is None:
        return None
    what = f"`{operand}` is wrong" if operand else f"{first_line(finding.failure)} is raised"  # type: ignore[arg-type]
    return diagnose(
        "wrong_stream",
        f"on a stream other than the default, {what}: launch on at::cuda::getCurrentCUDAStream()",
        severity="warning",
    )


def nondeterministic_grad(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Repeats of one backward agree in every bit."""
    if not cases.first.values_comparable:
        return None
    first: dict[str, torch.Tensor | None] = {}
    asked = attempt_each(candidate, cases.first, [{}] * REPEATS, "repeating the backward")
    for turn, (finding, key) in enumerate(asked):
        if finding.failure is not None:
            return None
        gradients = dict(product(candidate, cases.first, finding, key).gradients)
        first = first or gradients
        for name, gradient in gradients.items():
            before = first[name]
            if gradient is not None and before is not None and not same_bits(gradient, before):
                distance = float((gradient - before).abs().max())
                return diagnose(
                    "nondeterministic_grad",
                    f"gradient of `{cases.first.operand_names[name]}` differs by up to {distance:.2g} between repeats "
                    f"(run {turn + 1} of {REPEATS}): reduce in a fixed order instead of atomicAdd",
                    severity="warning",
                )
    return None


def inconsistent_with_forward(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Where the reference draws random numbers, the gradients are those of the submission's own forward."""
    if not cases.first.values_comparable:
        return diagnose(
            "random_not_seeded",
            "the reference draws random numbers, and equal calls under one seed of PyTorch's generators give other "
            "outputs: no gradient was checked there; draw from the device's default generator",
            severity="warning",
        )
    if cases.first.forward_seed is None:
        return None
    found = check_gradients(candidate, cases.first)
    return found and (carried_over(candidate, cases.first) or ignores_grad_output(candidate, cases) or found)


def double_backward_unsupported(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Whether the gradients themselves carry a graph."""
    finding = candidate.attempt(ask(candidate, cases.first, double=True), "backward", "differentiating twice")
    supported = finding.failure is None and finding.of(p.Gradients)[0].double_backward
    candidate.forget()  # a backward may write into buffers, which require grad now
    if supported:
        return None
    return diagnose(
        "double_backward_unsupported",
        "the gradients cannot be differentiated again (information only)",
        severity="info",
    )
