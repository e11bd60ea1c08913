"""Controls post-checks: a fault that the plain product of another draw shows is reported as that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from grader.grading.backward.causes import explain
from grader.grading.backward.experiments import Cases, Experiment, experiments
from grader.grading.backward.products import JudgedProduct, judge_products
from grader.grading.backward.run_experiments import run_experiments
from grader.grading.backward.vjp import ask, product
from grader.grading.candidate import Candidate
from grader.grading.compare import known_mistakes
from grader.grading.compare.blocks import reals
from grader.grading.compare.scaling import REDUCED_PRECISION, ROUNDING_RESIDUAL
from grader.grading.compare.tolerance import EPSILON
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import is_float, perturbed
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import MAX_LISTED, diagnose
from grader.verdict.models import Diagnosis


def controlled_experiments(
    candidate: Candidate, oracle: Oracle, run_on: Cases, selected: Iterable[Experiment]
) -> list[Diagnosis]:
    """The diagnoses of experiments; those of a plain product instead if one of another draw is wrong.

    Experiments also use draws that were not judged. Raises Stopped.
    """
    diagnoses = run_experiments(candidate, oracle, run_on, selected)
    failed = {diagnosis.code for diagnosis in diagnoses if diagnosis.severity == "error"}
    if not failed or failed & {one.code for one in experiments("post-check", "train") if one.lasting}:
        return diagnoses
    for mode in run_on.modes:
        for case in dict.fromkeys((mode.second, mode.constant)):
            if case is mode.first or not case.values_comparable:
                continue
            judged = judge_products(candidate, case)
            if not judged.gradients_are_right:
                others = [diagnosis for diagnosis in diagnoses if diagnosis.severity != "error"]
                stale = _keeps_an_operand(candidate, oracle, case, judged)
                alone = replace(mode, first=case, in_eval=None)
                found = [stale] if stale else explain(candidate, oracle, (), case, judged, alone)
                found = [run_on.of_mode(mode, one) or one for one in found]
                return [*(found if stale else map(_on_another_draw, found)), *others]
    return diagnoses


def _on_another_draw(diagnosis: Diagnosis) -> Diagnosis:
    what = f"on another draw of inputs and parameters, {diagnosis.message}"
    return diagnosis.model_copy(update={"message": what})


def _keeps_an_operand(candidate: Candidate, oracle: Oracle, case: Case, judged: JudgedProduct) -> Diagnosis | None:
    """`stale_saved_state` if a wrong gradient does not follow an operand that the right one follows.

    It was right on the first draw, so that it uses the operand's value there.
    """
    if judged.product is None:
        return None
    wrong = [fault.name for fault in judged.faults]
    before = judged.product.gradients
    for moved in [name for name in case.wrt if is_float(case.operand(name))][:MAX_LISTED]:
        other = _moved(oracle, case, moved)
        due = known_mistakes.gradients(oracle, other, "none")
        result = candidate.attempt(ask(candidate, other), "backward", f"backward with another {moved}")
        after = product(candidate, other, result).gradients
        for name in wrong:
            expected, ours, then = case.gradients[name], after.get(name), before[name]
            if expected is None or ours is None or then is None or name not in due:
                continue
            follows = _change(expected.reference64, due[name].reference64) > ROUNDING_RESIDUAL
            if follows and _change(then, ours) < EPSILON:
                what = (
                    f"after forward A and forward B, the gradient of `{case.operand_names[name]}` for B is that for an "
                    f"earlier `{case.operand_names[moved]}`: a change of it has no effect"
                )
                remedy = "keep what backward needs with ctx.save_for_backward in every forward"
                return diagnose("stale_saved_state", what, remedy=remedy)
    return None


def _moved(oracle: Oracle, case: Case, name: str) -> Case:
    """The case with noise of REDUCED_PRECISION on one operand."""
    (value,) = perturbed([case.operand(name)], oracle.device, REDUCED_PRECISION / EPSILON)
    assert isinstance(value, torch.Tensor)
    inputs = tuple(value if name == f"input[{index}]" else other for index, other in enumerate(case.inputs))
    return replace(case, inputs=inputs, state={key: value if key == name else of for key, of in case.state.items()})


def _change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Relative to the size before, in the Euclidean norm."""
    size = float(torch.linalg.vector_norm(reals(before)))
    return float(torch.linalg.vector_norm(reals(after).to(before.device) - reals(before))) / max(size, 1e-300)
