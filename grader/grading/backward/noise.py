"""Judges gradients whose values rounding decides, by what rounding does not decide.

They exist, are finite and not all zero, have the size of the reference's, and are linear in grad_output.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from grader.grading.backward.classify import GradientFault
from grader.grading.backward.describe import describe
from grader.grading.backward.experiments import Cases, experiments
from grader.grading.backward.products import JudgedProduct, judge_products
from grader.grading.backward.run_experiments import run_experiments
from grader.grading.backward.vjp import Product
from grader.grading.candidate import Candidate
from grader.grading.compare.blocks import reals
from grader.grading.compare.expected import EPSILON
from grader.grading.compare.tolerance import BASELINE_FACTOR_MAX
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle

LINEAR = "ignores_grad_output"
"""The experiment that compares gradients with each other instead of the reference's."""


def judge_noise(candidate: Candidate, oracle: Oracle, case: Case) -> JudgedProduct:
    """One product of an ill-posed case (`oracle/ill_posed.py`), and the experiment. Raises Stopped."""
    judged = judge_products(candidate, case)
    if judged.diagnoses or judged.product is None:
        return judged
    run_on = Cases(first=case, second=case, constant=case, keeps_outputs=False, seconds=oracle.budget.stage / 2)
    linear = [one for one in experiments("post-check", "train") if one.code == LINEAR]
    diagnoses = run_experiments(candidate, oracle, run_on, linear)
    faults = () if diagnoses else tuple(_out_of_size(case, judged.product))
    return replace(judged, diagnoses=diagnoses or describe(faults, case.name), faults=faults)


def _out_of_size(case: Case, actual: Product) -> list[GradientFault]:
    """The faults of gradients that are zero, or far smaller or larger than rounding makes them."""
    faults = []
    for name, gradient in actual.gradients.items():
        expected, label = case.gradients[name], case.operand_names[name]
        if expected is None or gradient is None:
            continue
        size = float(torch.linalg.vector_norm(reals(gradient).to(torch.float64)))
        norm, error, factor = expected.norm, expected.error_l2, BASELINE_FACTOR_MAX**2
        # A norm far below the error is that of zeros.
        small = size * factor < norm and norm > math.sqrt(EPSILON) * error
        if size == 0.0 and small:
            faults.append(
                GradientFault("grad_zero", name, label, "all zero", "write its gradient buffer, and return it")
            )
        elif small or size > factor * (norm + error):
            text = f"{size / (norm + error):.2g} times as large as the reference's"
            remedy = "look for a factor, or for a term that is missing or added too often"
            faults.append(GradientFault("grad_wrong", name, label, text, remedy))
    return faults
