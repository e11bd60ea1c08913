"""Searches for the cause of a wrong product: another mode, a known mistake, or a failed experiment."""

from __future__ import annotations

from collections.abc import Sequence

from grader.grading.backward.experiments import Cases, experiments
from grader.grading.backward.mistakes import explain_by_known_mistake, right_for_ones
from grader.grading.backward.products import JudgedProduct, judge_products
from grader.grading.backward.run_experiments import run_experiments
from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis


def find_causes(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    case: Case,
    judged: JudgedProduct,
    experiment_cases: Cases,
) -> list[Diagnosis]:
    """Diagnoses that may explain the faults of a case, or none. Raises Stopped."""
    causes = _other_mode(candidate, cases, case)
    if causes or judged.missing:
        return causes
    causes = explain_by_known_mistake(oracle, case, judged.product) if judged.product is not None else []
    if causes:
        return causes
    known = {diagnosis.code for diagnosis in judged.diagnoses}
    diagnoses = run_experiments(candidate, oracle, experiment_cases, experiments("cause", "train"))
    causes = [diagnosis for diagnosis in diagnoses if diagnosis.code not in known]
    if not any(diagnosis.severity == "error" for diagnosis in causes):
        causes += right_for_ones(candidate, oracle, case)
    return causes


def _other_mode(candidate: Candidate, cases: Sequence[Case], case: Case) -> list[Diagnosis]:
    """`train_eval_mismatch` if the gradients of the same variant are right in the other mode.

    The other mode is judged again even if it was right before: that may have worn off.
    """
    other = next((o for o in cases if o.variant == case.variant and o.training != case.training), None)
    if other is None or not (case.values_comparable and other.values_comparable):
        return []
    if judge_products(candidate, other).diagnoses:
        return []
    if case.training:
        what = "the gradients are right in eval() and wrong in train()"
        remedy = (
            "differentiate what the forward computes in train() only, such as the mean and the variance of a batch; a "
            "term of theirs is missing or wrong"
        )
    else:
        what = "the gradients are right in train() and wrong in eval()"
        remedy = (
            "honour self.training in the backward too; running statistics are constants there and carry no gradients"
        )
    where = f"variant {case.variant}"
    return [diagnose("train_eval_mismatch", what, where=where, remedy=remedy, stage="backward")]
