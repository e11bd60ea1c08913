"""Experiments with frozen operands: the gradients of the others stay right, and buffers are updated."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence

from grader.grading.backward.experiments._base import ExperimentCases, experiment, first_wrong
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_buffers, differ
from grader.grading.candidate.parts import export_buffers
from grader.grading.candidate.vjp import Answer, attempt_each, one_product, product_job
from grader.grading.messages import MAX_LISTED, diagnose, first_line, in_backticks
from grader.grading.oracle.case import Case, is_input
from grader.verdict.models import Diagnosis

MAX_SUBSETS = 48
"""Subsets that are tried. Of more, a third are random halves of the operands: one in four freezes one of two given
operands and not the other."""
SUBSETS_OF_A_JOB = 12
"""Subsets that one job tries at most, so that the time is looked at in between."""
NEEDS = (
    "give the others their gradients whatever is frozen: let no result depend on requires_grad, and check "
    "ctx.needs_input_grad in a Function"
)


@experiment(
    "ignores_needs_input_grad",
    question="With some operands frozen, and with all but one, the others' gradients stay right.",
    remedy=NEEDS,
    rank=70,
)
def ignores_needs_input_grad(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """All inputs and all parameters are frozen in both modes, each other subset in a drawn one.

    Later ones are left out if there is no time.
    """
    present = [name for name, expected in cases.first.gradients.items() if expected is not None]
    drawn = random.Random(cases.first.seed)  # no submission can foresee it, and asked again, it asks the same
    groups, rest = _subsets(present, drawn)
    turns = [*itertools.product(cases.modes, groups), *((drawn.choice(cases.modes), subset) for subset in rest)]
    for mode, frozen, answer in _with_frozen(candidate, turns, cases.seconds):
        diagnosis = _wrong_gradient(candidate, mode.first, frozen, answer)
        if diagnosis is not None:
            return cases.of_mode(mode, diagnosis)
    return None


def _wrong_gradient(candidate: Candidate, case: Case, frozen: tuple[str, ...], answer: Answer) -> Diagnosis | None:
    if answer.result.failure is None:
        operand = first_wrong(candidate, case, answer.result, key=answer.key, only=set(case.wrt) - set(frozen))
        if operand is None:
            return None
        wrong = f"the gradient of `{operand}` is wrong"
    else:
        wrong = f"{first_line(answer.result.failure)} is raised"
    few = len(frozen) <= MAX_LISTED
    shown = in_backticks([case.operand_names[name] for name in frozen]) if few else f"{len(frozen)} operands"
    return diagnose("ignores_needs_input_grad", f"with {shown} frozen, {wrong}", remedy=NEEDS)


def _with_frozen(
    candidate: Candidate, turns: Sequence[tuple[ExperimentCases, tuple[str, ...]]], seconds: float
) -> Iterator[tuple[ExperimentCases, tuple[str, ...], Answer]]:
    """Each mode and subset with its answer, until one raises; no job starts after so many seconds.

    torch.compile takes seconds for each new subset, as for any new condition: a job has no more subsets than would fit
    if each took as long as the slowest job so far.
    """
    started = time.monotonic()
    fitting = seconds / max(candidate.slowest_seconds, 1e-9)
    of_a_job = int(min(SUBSETS_OF_A_JOB, max(1, fitting)))
    for first in range(0, len(turns), of_a_job):
        if time.monotonic() - started > seconds:
            return
        some = turns[first : first + of_a_job]
        questions = [one_product(candidate, mode.first, frozen=frozen) for mode, frozen in some]
        answers = attempt_each(candidate, questions, "backward with some operands frozen")
        yield from ((*one, answer) for one, answer in zip(some, answers, strict=False))


def _subsets(operands: Sequence[str], drawn: random.Random) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Subsets of the operands to freeze: all inputs and all parameters; then single operands and all but one.

    If these are more than MAX_SUBSETS, a random choice of the latter, and random halves of the operands.
    """
    singles = [(name,) for name in operands]
    groups = [tuple(name for name in operands if is_input(name) is inputs) for inputs in (True, False)]
    others = [tuple(name for name in operands if name != left) for left in operands]
    subsets = [subset for subset in dict.fromkeys([*groups, *singles, *others]) if 0 < len(subset) < len(operands)]
    first = [subset for subset in groups if subset in subsets]
    rest = [subset for subset in subsets if subset not in groups]
    if len(subsets) > MAX_SUBSETS:
        third = MAX_SUBSETS // 3
        halves = [tuple(drawn.sample(operands, len(operands) // 2)) for _ in range(third)]
        rest = [*drawn.sample(rest, 2 * third - len(first)), *halves]
    return first, drawn.sample(rest, len(rest))


@experiment(
    "buffers_not_updated",
    question="Buffers are updated with all inputs frozen, as in a first layer, and with all parameters frozen.",
    remedy="update buffers whatever requires a gradient",
    rank=80,
)
def buffers_not_updated(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    return cases.in_each_mode(lambda mode: _not_updated(candidate, mode.first))


def _not_updated(candidate: Candidate, case: Case) -> Diagnosis | None:
    if not (case.updated_buffers and case.values_comparable):
        return None
    inputs = tuple(name for name in case.wrt if is_input(name))
    parameters = tuple(name for name in case.wrt if name not in inputs)
    for what, frozen in (("inputs", inputs), ("parameters", parameters)):
        if not frozen or len(frozen) == len(case.wrt):
            continue
        job = product_job(candidate, case, frozen=frozen)
        export_buffers(job, candidate, case)
        result = candidate.attempt(job, "backward", f"backward with all {what} frozen")
        wrong = None if result.failure else differ(check_buffers(candidate, case, result))
        if wrong is not None:
            return diagnose(
                "buffers_not_updated",
                f"with all {what} frozen, {wrong} after one forward and its backward",
                remedy="update it whatever requires a gradient",
                stage="backward",
            )
    return None
