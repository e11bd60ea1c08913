"""Experiments on repeated backwards: equal calls give equal gradients, and gradients add up in .grad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Literal

import torch

from grader import protocol as p
from grader.executor import JobBuilder
from grader.grading.backward.experiments._base import (
    ExperimentCases,
    changed_operands,
    experiment,
    first_wrong,
    note_plain,
    plain_is_right,
    present,
    wrong_operands,
)
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import (
    Answer,
    Question,
    add_graph_forward,
    attempt_each,
    export_gradients,
    one_product,
    product,
)
from grader.grading.compare import scaling
from grader.grading.compare.scaling import REDUCED_PRECISION
from grader.grading.messages import VARIES, diagnose, first_line, fresh_tensor
from grader.grading.oracle.case import Case
from grader.verdict.models import Diagnosis

NO_WRITES = "do not write into tensors that forward saved, nor add to one that ctx keeps"
KEEP_ALL = "keep what it needs with ctx.save_for_backward, and drop nothing in backward"
NOT_RETAINED = "donated buffers"
"""Part of PyTorch's message about code from torch.compile, which keeps no graph even with retain_graph."""


@experiment(
    "accumulation_broken",
    question="Equal calls give equal gradients, whatever ran before, and two backwards into the same .grad add up.",
    remedy=fresh_tensor("backward", graphs=False),
    rank=30,
    explains=True,
    lasting=True,
    weight=4,
)
def accumulation_broken(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    carried = carried_over(candidate, cases)
    if carried is not None or not all(plain_is_right(candidate, mode.first) for mode in cases.modes):
        return carried
    return _adds_up(candidate, cases)


def carried_over(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """A diagnosis if an earlier backward changes the gradients of a later one.

    The backward runs twice, once for a grad_output of zeros, then once more.
    """
    if not cases.first.values_comparable:
        return None
    zero = {name: value.new_zeros(()).expand(value.shape) for name, value in cases.first.cotangents.items()}
    questions = [
        one_product(candidate, case, cotangents=cotangents)
        for case in (mode.first for mode in cases.modes)
        for cotangents in (case.cotangents, case.cotangents, zero, case.cotangents)
    ]
    answers = attempt_each(candidate, questions, "repeating the backward")
    for mode in cases.modes:
        of_mode = list(islice(answers, len(questions) // len(cases.modes)))
        if not of_mode or of_mode[-1].result.failure is not None:
            return None
        diagnosis = _carried(candidate, mode.first, of_mode)
        if diagnosis is not None:
            return cases.of_mode(mode, diagnosis)
    return None


def _carried(candidate: Candidate, case: Case, answers: Sequence[Answer]) -> Diagnosis | None:
    note_plain(candidate, case, *answers[-1])
    first, second, left, last = (present(product(candidate, case, *answer).gradients) for answer in answers)
    names = [name for name in first if all(name in gradients for gradients in (second, left, last))]
    before = [first[name] for name in names]
    again, later = (scaling.changes(before, [gradients[name] for name in names]) for gradients in (second, last))
    for name, change in zip(names, again, strict=True):
        kept = change > REDUCED_PRECISION and bool(left[name].any())
        if kept and scaling.change(second[name], left[name]) <= REDUCED_PRECISION:
            return diagnose(
                "accumulation_broken",
                f"gradient of `{case.operand_names[name]}` changes when the same backward is repeated, and is not zero "
                "for a grad_output of zeros",
                amount=f"by {change:.2g} of its size",
                remedy="zero the buffer that backward adds to, or return a fresh tensor from each backward",
            )
    largest = dict(zip(names, map(max, again, later), strict=True))
    changed = [name for name, change in largest.items() if change > REDUCED_PRECISION]
    # A gradient that is zero up to rounding may change entirely, and yet be right each time.
    repeats = (answers[0], answers[1], answers[3]) if changed else ()
    wrong = {
        name
        for answer in repeats
        for name in wrong_operands(candidate, case, answer.result, key=answer.key, only=changed)
    }
    if not wrong:
        return None
    name = min(wrong, key=changed.index)
    return diagnose(
        "nondeterministic_grad",
        f"gradient of `{case.operand_names[name]}` changes between equal calls",
        amount=f"by {largest[name]:.2g} of its size, far more than rounding does",
        remedy=VARIES,
    )


def _adds_up(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """Two backwards into one .grad, through two graphs or one retained graph; and three whose gradients are all kept.

    One job, with a plain product as the control: the retained graphs come last, since code from torch.compile refuses
    them.
    """
    turns = {
        (mode.first, how): part
        for mode in cases.modes
        for how, part in _ways_to_add(candidate, mode.first).items()
        if how != "retained"
    }
    turns |= {(mode.first, "retained"): _ways_to_add(candidate, mode.first)["retained"] for mode in cases.modes}
    found: dict[tuple[Case, str], Diagnosis | None] = {}
    controls: dict[Case, Answer] = {}
    failed = False
    while (left := {key: part for key, part in turns.items() if key not in found}) and not failed:
        # Behind one that raised, the others are asked again.
        answers = attempt_each(candidate, list(left.values()), "two backwards into the same .grad")
        for (case, how), answer in zip(left, answers, strict=False):  # each of a large case holds gigabytes
            if how == "plain":
                controls[case] = answer
            found[case, how] = _JUDGES[how](candidate, case, answer, controls[case])
            failed |= answer.result.failure is not None and how in ("plain", "added")
    return cases.in_each_mode(lambda mode: next(filter(None, (found.get((mode.first, how)) for how in _JUDGES)), None))


def _ways_to_add(candidate: Candidate, case: Case) -> dict[str, Question]:
    return {
        "plain": one_product(candidate, case),
        "added": Question(case, lambda job, key: _twice(job, key, candidate, case, retained=False)),
        "kept": Question(case, lambda job, key: _three_times(job, key, candidate, case)),
        "retained": Question(case, lambda job, key: _twice(job, key, candidate, case, retained=True)),
    }


def _raises(candidate: Candidate, case: Case, answer: Answer, control: Answer) -> Diagnosis | None:
    if answer.result.failure is None:
        return None
    what = f"a repeated backward raises {first_line(answer.result.failure)}"
    return diagnose("accumulation_broken", what, remedy="build each backward on its own forward's ctx alone")


def _unlike(candidate: Candidate, case: Case, answer: Answer, control: Answer, factor: float = 1.0) -> str | None:
    """Display name of an operand whose gradient, times `factor`, is neither the reference's nor the plain product's.

    A gradient that the tolerance only just admits may fail it in a sum, which says nothing about the sum.
    """
    changed = changed_operands(candidate, case, answer, control, factor=factor)
    if not changed:
        return None
    return first_wrong(candidate, case, answer.result, key=answer.key, only=changed, factor=factor)


def _not_added(candidate: Candidate, case: Case, answer: Answer, control: Answer) -> Diagnosis | None:
    if answer.result.failure is not None:
        what = f"a second backward raises {first_line(answer.result.failure)}"
        return diagnose("accumulation_broken", what, remedy="build each backward on its own forward's ctx alone")
    operand = _unlike(candidate, case, answer, control, factor=2.0)
    if operand is None:
        return None
    what = f"two backwards into the same .grad do not add up for `{operand}`"
    return diagnose("accumulation_broken", what, remedy=fresh_tensor("backward", candidate.captures_graphs))


def _not_repeatable(candidate: Candidate, case: Case, answer: Answer, control: Answer) -> Diagnosis | None:
    failure = answer.result.failure
    if failure is not None:
        if NOT_RETAINED in failure.text:
            return None
        return diagnose(
            "accumulation_broken",
            f"a second backward through a retained graph raises {first_line(failure)}",
            remedy=NO_WRITES if "modified by an inplace operation" in failure.text else KEEP_ALL,
        )
    operand = _unlike(candidate, case, answer, control, factor=2.0)
    if operand is None:
        return None
    return diagnose(
        "accumulation_broken",
        f"a second backward through a retained graph gives another gradient of `{operand}`",
        remedy=NO_WRITES,
    )


def _overwritten(candidate: Candidate, case: Case, answer: Answer, control: Answer) -> Diagnosis | None:
    """The first backward's gradients are still right after two more: the three share no buffer, not even in turn."""
    if answer.result.failure is not None:
        return None
    operand = _unlike(candidate, case, answer, control)
    if operand is None:
        return None
    what = f"the next backward overwrites the gradient of `{operand}` that the one before returned"
    return diagnose("accumulation_broken", what, remedy=fresh_tensor("backward", candidate.captures_graphs))


_JUDGES = {"plain": _raises, "added": _not_added, "retained": _not_repeatable, "kept": _overwritten}
"""By the way to add, in the order in which the first diagnosis counts."""


def _twice(job: JobBuilder, key: str, candidate: Candidate, case: Case, *, retained: bool) -> None:
    """Two backwards into the same .grad, through one `retained` graph or through one each.

    The second gets -1/2 of the first's grad_output, so that half of the gradient remains.
    """
    wrt = candidate.wrt(case)
    job.put_inputs("a", case.inputs, requires_grad=True)

    def backward(cotangents: Mapping[str, torch.Tensor], into: Literal["fresh", "add"], retain: bool) -> None:
        given = job.cotangents(cotangents)
        job.step(p.Backward(tape="a", grads=key, cotangents=given, wrt=wrt, into=into, retain_graph=retain))

    add_graph_forward(job, case, "a")
    backward(case.cotangents, "fresh", retain=retained)
    if not retained:
        candidate.reset(job, case, only=case.updated_buffers)
        add_graph_forward(job, case, "a")
    backward(_minus_half(case), "add", retain=False)
    export_gradients(job, candidate, case, key, case.wrt)


def _three_times(job: JobBuilder, key: str, candidate: Candidate, case: Case) -> None:
    """Three forwards, then their backwards in turn; the first one's gradients are kept and exported."""
    job.put_inputs("a", case.inputs, requires_grad=True)
    wrt = candidate.wrt(case)
    half = _minus_half(case)
    given = {key: case.cotangents, f"{key}.second": half, f"{key}.third": half}
    for tape in given:
        if tape != key:
            candidate.reset(job, case, only=case.updated_buffers)
        add_graph_forward(job, case, "a", tape=tape)
    for tape, cotangents in given.items():
        job.step(p.Backward(tape=tape, grads=tape, cotangents=job.cotangents(cotangents), wrt=wrt))
    export_gradients(job, candidate, case, key, case.wrt)


def _minus_half(case: Case) -> dict[str, torch.Tensor]:
    return {name: -0.5 * value for name, value in case.cotangents.items()}
