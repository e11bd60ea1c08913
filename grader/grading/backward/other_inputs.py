"""Asks for gradients on inputs unlike the drawn ones, where the outputs are right."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from grader.errors import ReferenceLost, ReferenceOutOfMemory, ReferenceRefused
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import attempt_each, one_product, product
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import kth_smallest, norms_each
from grader.grading.compare.expected import EPSILON, Expected
from grader.grading.compare.nonsmooth import absolute_error
from grader.grading.compare.scaling import REDUCED_PRECISION, scale_of
from grader.grading.control import reference_passes
from grader.grading.forward.other_inputs import WrongTensor, difference, ended_by, narrow_inputs
from grader.grading.messages import diagnose, first_line
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case, first_comparable, is_input
from grader.grading.oracle.derivatives import are_derivatives
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.input_changes import (
    CERTAIN,
    EQUAL,
    NEAR_RANGE,
    OUTLIER,
    PAIRED,
    SCALED_FAR,
    SCALED_UP,
    SHIFTED,
    SIGNED_UP,
    SMALLER,
    over_pairs,
)
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.other_inputs import (
    EPSILON_SHOWS,
    LARGE_PARAMETERS,
    LARGER_PARAMETERS,
    SMALL_PARAMETERS,
    SPECIALS,
    OtherInputs,
    answers_well,
    drawn_in_room,
    lost_digits,
    other_inputs,
    room,
)
from grader.grading.oracle.remembered import derived
from grader.grading.oracle.values import is_float
from grader.grading.stopped import Stopped
from grader.verdict.models import Diagnosis

WITHOUT_GRADIENTS = frozenset({NEAR_RANGE, EQUAL})
"""Changes under which gradients overflow, or which tie what the reference chooses between."""
ONLY_FINITE = SPECIALS | {OUTLIER, CERTAIN}
"""Changes of whose gradients only NaN and infinity count. Beside 200 in every row, the rounding of a flash attention's
row sums of output times grad_output can be several times its gradient."""
SATURATING = frozenset({SCALED_UP, SIGNED_UP, SHIFTED, LARGE_PARAMETERS})
"""Changes that saturate a softmax, under which a gradient may be off by less than half, unless it is a multiple. What
is left of it is small because large terms cancel, and off by much in honest kernels too: in flash attention, which has
exp(score - logsumexp), by up to a fifth in 300 draws, and by another factor in each row."""


def judge_other_gradients(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], wrong_outputs: Collection[str]
) -> Diagnosis | None:
    """A fault of gradients on inputs unlike those of the first comparable case: an error or a warning.

    Not under the changes for which outputs are wrong. Raises Stopped if something outside may have ended a process.
    """
    case = first_comparable(cases)
    if case is None or case.released or not _asks_gradients(oracle, case):
        return None
    try:
        others = _with_tolerances(oracle, case)
    except (ReferenceLost, ReferenceOutOfMemory):  # by inputs that are not the problem's
        return None
    others = [other for other in others if other.change not in wrong_outputs]

    def judge(one: Candidate) -> Diagnosis | None:
        wrong: dict[str, WrongTensor] = {}
        try:
            for change, found in _wrong_gradients(one, oracle, case, others):
                wrong.setdefault(change, found)
        except Stopped as stopped:
            wrong |= ended_by(stopped)
        return narrow_inputs(wrong, others, case, stage="backward")

    diagnosis, key = judge(candidate), ("other gradients judged", tuple(wrong_outputs))
    severities = ("error", "warning")
    return diagnosis if diagnosis and reference_passes(candidate, oracle, case, key, judge, severities) else None


@derived
def _with_tolerances(oracle: Oracle, case: Case) -> list[OtherInputs]:
    """The case with other inputs and their gradients, where the reference has any."""
    others, found, *_ = _with_gradients(oracle, case)
    made = []
    for other, gradients in zip(others, found, strict=True):
        smaller = SMALL_PARAMETERS if other.change in (LARGER_PARAMETERS, LARGE_PARAMETERS) else SMALLER
        controls = zip(others, found, strict=True)
        control, of_control = next(
            ((one.case, values) for one, values in controls if one.change == smaller), (case, {})
        )
        tolerant: dict[str, Expected | None] = dict.fromkeys(case.gradients)
        before, after = _growth(control, case), _growth(case, other.case)
        for name, expected in gradients.items():
            usual = case.gradients[name]
            if usual is not None and answers_well(expected, usual):
                slack = lost_digits(usual.norm) if other.change == SCALED_FAR else 0.0
                if other.change not in EPSILON_SHOWS | {SCALED_FAR}:
                    size = usual.norm * after ** _degree(usual, of_control.get(name), before)
                    slack = room(size, expected.dtype)
                tolerant[name] = _tolerant(expected, usual, slack)
        if any(tolerant.values()):
            made.append(replace(other, case=replace(other.case, gradients=tolerant)))
    return made


class _Found(NamedTuple):
    """The cases whose gradients were asked, and these."""

    others: list[OtherInputs]
    gradients: list[Mapping[str, Expected]]
    no_room: list[str]
    """Changes for which a large case leaves no room."""
    no_time: list[str]
    """Changes for which half the seconds of an experiment were too short."""


@derived
def _with_gradients(oracle: Oracle, case: Case) -> _Found:
    """Those of as many cases as there is room and time for: first what measures how a gradient grows, then any."""
    usable = [other for other in other_inputs(oracle, case).cases if other.change not in WITHOUT_GRADIENTS]
    controls = [at for at, other in enumerate(usable) if other.change in (SMALLER, SMALL_PARAMETERS)]
    rest = [at for at in range(len(usable)) if at not in controls]
    fitting = drawn_in_room(oracle, case.nbytes, rest)
    order = [*controls, *chance.draw.sample(fitting, len(fitting))] if fitting or not rest else []
    found: dict[int, Mapping[str, Expected]] = {}
    end = oracle.clock() + oracle.budget.experiment_seconds / 2
    while len(found) < len(order) and (not found or oracle.clock() < end):
        # Each question takes about as long as all before it: many are faster together, and a long one is the last.
        chosen = order[len(found) : 2 * len(found) + 1]
        found |= zip(chosen, _gradients(oracle, case, [usable[at] for at in chosen]), strict=True)
    kept = sorted(found)
    in_part = {usable[at].change for at in kept}
    no_room = {usable[at].change for at in rest if at not in fitting} - in_part
    no_time = {usable[at].change for at in order if at not in found} - in_part - no_room
    return _Found([usable[at] for at in kept], [found[at] for at in kept], sorted(no_room), sorted(no_time))


def _asks_gradients(oracle: Oracle, case: Case) -> bool:
    """Whether there are gradients to compare, in a time that a submission should take."""
    return bool(case.wrt) and oracle.runs_float64(case) and not oracle.is_slow(case)


def other_inputs_left_out(oracle: Oracle, cases: Sequence[Case]) -> list[Diagnosis]:
    """The information that a large or slow case had no room for some other inputs, or their gradients."""
    case = first_comparable(cases)
    if case is None or case.released:
        return []
    try:
        others = other_inputs(oracle, case)
        found = _with_gradients(oracle, case) if _asks_gradients(oracle, case) else None
    except (ReferenceLost, ReferenceOutOfMemory):
        return []
    texts = [
        *_left_out("no room for copies of these other inputs", others.no_room),
        *_left_out("no time for these other inputs", others.no_time),
    ]
    if case.wrt and oracle.is_slow(case):
        texts.append("the reference is slow: gradients for inputs unlike the drawn ones were not asked")
    if found:
        texts += _left_out("no room for gradients of these other inputs", found.no_room)
        texts += _left_out("no time for gradients of these other inputs", found.no_time)
    return [diagnose("checks_left_out", text, severity="info") for text in texts]


def _left_out(what: str, changes: Sequence[str]) -> list[str]:
    """The sentence on inputs that were left out, if any was."""
    return [f"{what}, chosen at random: {'; '.join(changes)}"] if changes else []


def _growth(before: Case, after: Case) -> float:
    """The largest factor between tensors of two cases, 1 at least."""
    sides = ([*before.inputs, *before.state.values()], [*after.inputs, *(after.state[name] for name in before.state)])
    pairs = [(old, new) for old, new in zip(*sides, strict=True) if is_float(old) and is_float(new)]
    old_norms, new_norms = norms_each([old for old, _ in pairs]), norms_each([new for _, new in pairs])
    return max([1.0, *(new / old for old, new in zip(old_norms, new_norms, strict=True) if old)])


def _degree(usual: Expected, smaller: Expected | None, growth: float) -> float:
    """The power of the operands' size with which a gradient grows, as from the smaller operands to the usual ones.

    Terms of that size may cancel in it: behind a saturated softmax, what is left of them is rounding.
    """
    if smaller is None or not smaller.norm or growth == 1 or not usual.norm:
        return 0.0
    return max(0.0, math.log(usual.norm / smaller.norm) / math.log(growth))


def _gradients(oracle: Oracle, case: Case, others: Sequence[OtherInputs]) -> list[Mapping[str, Expected]]:
    """The gradients of changed cases; none of one that the reference does not take."""
    changed = [other.case for other in others]
    passes = [
        Pass(MODEL, changed_case.inputs, changed_case.state, case.cotangents, case.wrt, case.training)
        for changed_case in changed
    ]
    try:
        found = list(variations.compared(oracle, case, passes))
    except ReferenceRefused:
        return [{}] if len(others) == 1 else [_gradients(oracle, case, [other])[0] for other in others]
    return [trackers.expected("gradients", lambda _: 1.0, case.operand_names) for trackers in found]


def _tolerant(expected: Expected, usual: Expected, slack: float) -> Expected:
    """The gradient with room for another algorithm in every rule."""
    lost = tolerance.BASELINE_FACTOR_L2 * room(1.0)
    return replace(
        expected,
        error_l2=expected.error_l2 + slack,
        error_max=expected.error_max + slack / math.sqrt(max(expected.reference64.numel(), 1)),
        reduction_length=usual.reduction_length + (lost / EPSILON) ** 2,
    )


def _wrong_gradients(
    candidate: Candidate, oracle: Oracle, case: Case, others: Sequence[OtherInputs]
) -> Iterator[tuple[str, WrongTensor]]:
    """Yields changes with a fault of each, up to the first backward that raises. Raises Stopped."""
    questions = [one_product(candidate, other.case) for other in others]
    for other, answer in zip(others, attempt_each(candidate, questions, "backwards of other inputs"), strict=False):
        if answer.result.failure is not None:
            yield other.change, WrongTensor(f"the backward raises {first_line(answer.result.failure)}")
            continue
        gradients = product(candidate, other.case, answer.result, answer.key).gradients
        for name, expected in other.case.gradients.items():
            gradient = gradients[name]
            if expected is None or gradient is None or (other.change in ONLY_FINITE and gradient.isfinite().all()):
                continue
            if other.change == PAIRED:
                if not is_input(name):
                    continue
                expected, gradient = _over_pairs(expected), over_pairs(gradient)
            any_choice = replace(expected, ties=None)
            found = difference(f"the gradient of `{other.case.operand_names[name]}`", any_choice, gradient)
            if found and expected.ties and tolerance.passes(expected, gradient):
                continue  # with room for another choice at ties alone
            if found is None:
                continue
            slight = other.change in SATURATING and found.error is not None and 2 * found.error < 1
            if slight and not _is_a_multiple(expected, gradient):
                continue
            if other.change == SCALED_FAR and not _in_most_elements(expected, gradient):
                continue
            if is_input(name) and _is_the_derivative(oracle, case, other.case, gradients):
                break
            yield other.change, found


def _over_pairs(expected: Expected) -> Expected:
    """The sums of a gradient over equal neighbours, in which ties do not show."""
    sums = over_pairs(expected.reference64)
    return replace(expected.around(sums), shape=tuple(sums.shape))


def _is_a_multiple(expected: Expected, gradient: torch.Tensor) -> bool:
    """Whether half of the elements that are not zero, too, are off by the factor that the whole gradient is off by."""
    right = expected.reference64.to(gradient.device)
    factor = scale_of(gradient, right)
    if factor is None:
        return False
    error = absolute_error(gradient, factor * right)[right != 0] / right[right != 0].abs()
    return float(kth_smallest(error, math.ceil(len(error) / 2))) < REDUCED_PRECISION


def _in_most_elements(expected: Expected, gradient: torch.Tensor) -> bool:
    """Whether half of the elements are wrong, as by an epsilon: of tiny numbers beside a 1, few tie by rounding."""
    error = absolute_error(gradient, expected.reference64.to(gradient.device)).reshape(-1)
    return float(kth_smallest(error, math.ceil(len(error) / 2))) > room(expected.rms)


def _is_the_derivative(oracle: Oracle, case: Case, other: Case, gradients: Mapping[str, torch.Tensor | None]) -> bool:
    """Whether the candidate's gradients are derivatives where the reference's, by a change of inputs, are no more."""
    theirs = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    if not are_derivatives(oracle, other, theirs):
        return False
    usual, changed = (
        {name: expected.reference64 for name, expected in one.gradients.items() if expected is not None}
        for one in (case, other)
    )
    return are_derivatives(oracle, case, usual) and not are_derivatives(oracle, other, changed)
