"""Judges gradients whose values rounding decides, by what rounding does not decide.

They exist and are linear in grad_output. Their size says nothing: one reference's gradients, run twice in float32,
differed by a factor of 200, and a kernel that rounds a norm over two values to 1 and -1 has zeros behind it.
"""

from __future__ import annotations

from dataclasses import replace

from grader.grading.backward.experiments import Cases, experiments
from grader.grading.backward.products import JudgedProduct, judge_products
from grader.grading.backward.run_experiments import run_experiments
from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle

LINEAR = "ignores_grad_output"
"""The experiment that compares gradients with each other instead of the reference's."""


def judge_noise(candidate: Candidate, oracle: Oracle, case: Case) -> JudgedProduct:
    """One product of an ill-posed case (`oracle/comparability.py`), and the experiment. Raises Stopped."""
    judged = judge_products(candidate, case)
    if judged.diagnoses or judged.product is None:
        return judged
    run_on = Cases(
        first=case,
        second=case,
        others=lambda: case.inputs,
        constant=case,
        keeps_outputs=False,
        seconds=oracle.budget.experiment,
    )
    linear = [one for one in experiments("post-check", "train") if one.code == LINEAR]
    return replace(judged, diagnoses=run_experiments(candidate, oracle, run_on, linear))
