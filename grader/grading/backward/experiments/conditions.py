"""Experiments on the conditions of a backward: streams, repeats, random numbers, second derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from grader import protocol as p
from grader.grading.backward.experiments._base import ExperimentCases, experiment, first_wrong
from grader.grading.backward.experiments.accumulation import carried_over
from grader.grading.backward.experiments.grad_outputs import ignores_grad_output
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import attempt_each, one_product, product, product_job
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import same_bits
from grader.grading.messages import VARIES, diagnose, first_line
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.patterns.pattern import MAX_ELEMENTS, Pattern
from grader.grading.patterns.unwritten import unwritten
from grader.grading.random.seeded import check_gradients
from grader.machine.backends import backend
from grader.verdict.models import Diagnosis

REPEATS = 5
"""Backwards that must agree: atomics on a busy GPU differ in nearly every one."""
CURRENT_STREAM = "launch on at::cuda::getCurrentCUDAStream()"
FIXED_ORDER = "reduce in a fixed order, without additions that are atomic or not synchronised"


@experiment(
    "inconsistent_with_forward",
    question="If the reference draws random numbers, the gradients are those of the submission's own forward.",
    remedy="use the mask that forward drew, with its scale",
    rank=20,
    lasting=True,
)
def inconsistent_with_forward(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    if not cases.first.values_comparable:
        return diagnose(
            "random_not_seeded",
            "the reference draws random numbers, and equal calls under one seed of PyTorch's generators give other "
            "outputs: no gradient was checked there",
            remedy="draw from the device's default generator",
        )
    if cases.first.forward_seed is None:
        return None
    diagnosis = check_gradients(candidate, cases.first)
    return diagnosis and (carried_over(candidate, cases) or ignores_grad_output(candidate, cases) or diagnosis)


@experiment(
    "wrong_stream",
    question="The gradients are right on a busy stream other than the default.",
    remedy=CURRENT_STREAM,
    rank=100,
    train_only=True,
)
def wrong_stream(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """Work that goes to another stream than the current one reads its inputs too early."""
    if not backend(candidate.device).streams:
        return None
    questions = [one_product(candidate, mode.first, side_stream=True) for mode in cases.modes]
    answers = attempt_each(candidate, questions, "running on a side stream")
    for mode, (result, key) in zip(cases.modes, answers, strict=False):
        if result.failure is not None:
            what = f"{first_line(result.failure)} is raised"
        else:
            operand = first_wrong(candidate, mode.first, result, key=key)
            if operand is None:
                continue
            what = f"`{operand}` is wrong"
        what = f"on a stream other than the default, {what}"
        return cases.of_mode(mode, diagnose("wrong_stream", what, remedy=CURRENT_STREAM))
    return None


@experiment(
    "nondeterministic_grad",
    question="Repeats of one backward agree in every bit.",
    remedy=FIXED_ORDER,
    rank=110,
    train_only=True,
    explains=True,
)
def nondeterministic_grad(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    case = cases.first
    repeats = _repeated(candidate, case) if case.values_comparable else None
    if repeats is None or repeats.differing is None:
        return None
    operand, distance, turn = repeats.differing
    raced = next((operand for operand in repeats.wrong if operand is not None), None)
    if raced is not None and (None in repeats.wrong or (repeats.unlike and not _adds_to_earlier(candidate, cases))):
        count = sum(operand is not None for operand in repeats.wrong)
        what = f"gradient of `{raced}` is wrong in {count} of {REPEATS} repeats of one backward"
        amount = f"which differ by up to {distance:.2g}"
        pattern = _unwritten(case, raced, repeats.small)
        if pattern is not None:
            what = f"{what}, {pattern}"
        remedy = pattern.remedy if pattern else VARIES
        return diagnose("nondeterministic_grad", what, where=case.where, amount=amount, remedy=remedy)
    what = f"gradient of `{operand}` differs by up to {distance:.2g} between repeats"
    where = f"run {turn} of {REPEATS}"
    return diagnose("nondeterministic_grad", what, where=where, remedy=FIXED_ORDER, severity="warning")


@dataclass
class _Repeats:
    """What was seen of REPEATS equal backwards."""

    small: list[dict[str, torch.Tensor | None]] = field(default_factory=list)
    """The gradients of each, but for large ones."""
    wrong: list[str | None] = field(default_factory=list)
    """The first operand of each whose gradient is wrong, as messages call it."""
    differing: tuple[str, float, int] | None = None
    """The first operand whose gradient differs from that of the first backward, by how much, and in which one."""
    unlike: bool = False
    """Whether some gradients differ by more than two right ones. Not asked once a backward was right."""


def _repeated(candidate: Candidate, case: Case) -> _Repeats | None:
    """Repeats of one backward; None if one raises. Raises Stopped."""
    seen, first = _Repeats(), dict[str, torch.Tensor | None]()
    questions = [one_product(candidate, case)] * REPEATS
    for turn, answer in enumerate(attempt_each(candidate, questions, "repeating the backward"), 1):
        if answer.result.failure is not None:
            return None
        gradients = dict(product(candidate, case, *answer).gradients)
        first = first or gradients
        seen.small.append({name: g for name, g in gradients.items() if g is None or g.numel() <= MAX_ELEMENTS})
        seen.wrong.append(first_wrong(candidate, case, answer.result, key=answer.key))
        for name, gradient in gradients.items():
            before = first[name]
            if gradient is None or before is None or same_bits(gradient, before):
                continue
            if seen.differing is None:
                seen.differing = case.operand_names[name], float((gradient - before).abs().max()), turn
            expected = case.gradients[name]
            if expected is None or seen.unlike or None in seen.wrong:
                continue
            # What is rounded to 16 bits goes another way where a sum of float32 ends in another order.
            if known_mistakes.rounded_to(before, expected) is None:
                middle = (before + gradient) / 2  # within the tolerance of two right ones
                seen.unlike = not tolerance.passes(expected.around(before), middle)
    return seen


def _unwritten(case: Case, operand: str, repeated: Sequence[Mapping[str, torch.Tensor | None]]) -> Pattern | None:
    """The only region in which any repeat of this gradient is wrong; `operand` is its name in messages."""
    for name, expected in case.gradients.items():
        runs = [gradient for gradients in repeated if (gradient := gradients.get(name)) is not None]
        if case.operand_names[name] == operand and expected is not None and len(runs) == len(repeated):
            return unwritten(case, name, expected, runs)
    return None


def _adds_to_earlier(candidate: Candidate, cases: ExperimentCases) -> bool:
    """Whether each backward adds to what an earlier one left, so that equal calls differ without a race."""
    carried = carried_over(candidate, cases)
    return carried is not None and carried.code == "accumulation_broken"


@experiment(
    "double_backward_unsupported",
    question="The gradients can be differentiated again, if the reference's can.",
    remedy="build the backward from differentiable operations",
    rank=120,
    train_only=True,
)
def double_backward_unsupported(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    result = candidate.attempt(product_job(candidate, cases.first, double=True), "backward", "differentiating twice")
    supported = result.failure is None and result.of(p.Gradients)[0].double_backward
    candidate.forget()  # a backward may write into buffers, which require grad now
    if supported:
        return None
    what = "the gradients cannot be differentiated again, and the reference's can (information only)"
    remedy = "build the backward from differentiable operations if second derivatives are needed"
    return diagnose("double_backward_unsupported", what, remedy=remedy)
