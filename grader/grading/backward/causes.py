"""Explains a wrong product: its cause, or else what its wrong elements have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grader.grading.backward.describe import describe, with_patterns
from grader.grading.backward.experiments import ExperimentCases, experiments
from grader.grading.backward.mistakes import changed_after_saving, explain_by_known_mistake, right_for_ones
from grader.grading.backward.products import JudgedProduct, judge_product
from grader.grading.backward.run_experiments import race, run_experiments, wrong_once
from grader.grading.candidate.buffers import uses_updated_buffers
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import right_up_to_rounding
from grader.grading.compare import tolerance
from grader.grading.messages import diagnose, fault_text, fold, in_backticks, said_of_eval, wrong_in_one_mode
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.status import errors_first
from grader.verdict.models import Diagnosis


def explain(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    case: Case,
    judged: JudgedProduct,
    experiment_cases: ExperimentCases,
) -> list[Diagnosis]:
    """The diagnoses of a wrong product, with what follows from a cause folded under it. Raises Stopped."""
    raced = None if judged.missing else race(candidate, replace(experiment_cases, first=case))
    if raced is not None:
        return fold(raced, judged.diagnoses)
    other_mode = _right_in_other_mode(candidate, oracle, cases, case)
    if judged.missing:
        first, *others = judged.diagnoses
        return [said_of_eval(first) if other_mode and not case.training else first, *others]
    if other_mode:  # in the mode that ran first, a gradient that is kept from the first grad_output is right
        chosen = [one for one in experiments("cause", "train") if one.code == "ignores_grad_output"]
        causes = run_experiments(candidate, oracle, experiment_cases, chosen)
    else:
        causes = _causes(candidate, oracle, case, judged, experiment_cases)
    errors = [cause for cause in causes if cause.severity == "error"]
    if errors:
        return errors_first([*fold(errors[0], [*errors[1:], *judged.diagnoses]), *_others(causes)])
    if not judge_product(candidate, oracle, case).diagnoses:
        return errors_first([wrong_once(*judged.diagnoses), *_others(causes)])
    found, remedy = judged.diagnoses, None
    if judged.product is not None and judged.faults:
        faults = with_patterns(candidate, oracle, case, judged.faults, judged.product)
        about = {diagnosis.code for diagnosis in describe(judged.faults, case.name)}
        found = [*(one for one in found if one.code not in about), *describe(faults, case.name)]
        remedy = faults[0].remedy if faults[0].explained else None
        # A branch that no element of the other mode's draw reaches is wrong there too.
        other_mode = other_mode and not any(fault.pattern is not None and fault.pattern.by_value for fault in faults)
    if other_mode:
        found = _only_in_this_mode(case, found, remedy or _of_other_mode(oracle, case, judged))
    return errors_first([*found, *_others(causes)])


def _others(causes: Sequence[Diagnosis]) -> list[Diagnosis]:
    return [cause for cause in causes if cause.severity != "error"]


def _causes(
    candidate: Candidate, oracle: Oracle, case: Case, judged: JudgedProduct, experiment_cases: ExperimentCases
) -> list[Diagnosis]:
    """Known mistakes and failed experiments that may explain the faults."""
    causes = explain_by_known_mistake(oracle, case, judged.product) if judged.product is not None else []
    if causes:
        return causes
    known = {diagnosis.code for diagnosis in judged.diagnoses}
    diagnoses = run_experiments(candidate, oracle, experiment_cases, experiments("cause", "train"))
    causes = [diagnosis for diagnosis in diagnoses if diagnosis.code not in known]
    if not any(diagnosis.severity == "error" for diagnosis in causes) and judged.product is not None:
        changed = changed_after_saving(candidate, case, judged.product)
        causes += changed or right_for_ones(candidate, oracle, case, judged.product)
    return causes


def _right_in_other_mode(candidate: Candidate, oracle: Oracle, cases: Sequence[Case], case: Case) -> bool:
    """Whether the gradients of the same variant are right in the other mode, up to rounding.

    The other mode is judged again even if it was right before: that may have worn off.
    """
    other = case.in_other_mode(cases)
    if other is None:
        return False
    judged = judge_product(candidate, oracle, other)
    return not judged.diagnoses and all(map(right_up_to_rounding, judged.checks))


def _only_in_this_mode(case: Case, found: Sequence[Diagnosis], remedy: str | None) -> list[Diagnosis]:
    """`train_eval_mismatch` in the words of the first diagnosis, with all of them folded under it.

    `remedy` is the one that follows from the evidence, if any does.
    """
    what = f"{wrong_in_one_mode('the gradients are', case.training)}; {fault_text(found[0], case.where)}"
    if remedy is None and case.training:
        remedy = (
            "differentiate what the forward computes in train() only, such as the mean and the variance of a batch; a "
            "term of theirs is missing or wrong"
        )
    elif remedy is None:
        remedy = "differentiate what the forward computes in eval(): running statistics are constants there"
    return fold(diagnose("train_eval_mismatch", what, where=case.where, remedy=remedy, stage="backward"), found)


def _of_other_mode(oracle: Oracle, case: Case, judged: JudgedProduct) -> str | None:
    """The remedy for gradients that are those of the other mode, with the buffers as before the forward."""
    if judged.product is None:
        return None
    due = known_mistakes.gradients(oracle, replace(case, training=not case.training), "none")
    wrong = {fault.name: judged.product.gradients[fault.name] for fault in judged.faults}
    if not all(
        name in due and gradient is not None and tolerance.passes(due[name], gradient)
        for name, gradient in wrong.items()
    ):
        return None
    if uses_updated_buffers(oracle, case):
        return f"in train(), use {in_backticks(sorted(case.updated_buffers))} as updated in the backward too"
    return f"honour self.training in the backward too: this is the gradient of {'eval' if case.training else 'train'}()"
