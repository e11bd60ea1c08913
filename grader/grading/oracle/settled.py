"""Finds the elements of integer outputs that neither rounding nor a tie decides.

Another right kernel has these elements too: the largest of several numbers that are far enough apart, the code of a
number far from the next code. Others are open: noise in inputs and parameters, or in what operators choose by
(`worker/autograd/jitter.py`), changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

import torch

from grader import protocol as p
from grader.errors import ReferenceLost, ReferenceOutOfMemory, ReferenceRefused
from grader.grading.compare import nonsmooth
from grader.grading.compare.expected import EPSILON, Expected
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.perturbed_runs import perturbed_passes


def settled(oracle: Oracle, case: Case, integers: Mapping[str, Expected], noise: float) -> dict[str, Expected]:
    """Integer outputs of a case whose inputs are not the problem's, with a spread where they are open.

    `noise` is relative. Its runs are made when an element differs.
    """

    @cache
    def open_elements() -> dict[str, torch.Tensor]:
        try:
            return _open(oracle, case, integers, noise)
        except (ReferenceRefused, ReferenceLost, ReferenceOutOfMemory):  # by such noise
            return {
                name: torch.ones_like(expected.reference64, dtype=torch.bool) for name, expected in integers.items()
            }

    def spread(name: str, runs: int = 0) -> torch.Tensor:
        return open_elements()[name].double()

    return {name: replace(expected, spread=partial(spread, name)) for name, expected in integers.items()}


def _open(oracle: Oracle, case: Case, integers: Mapping[str, Expected], noise: float) -> dict[str, torch.Tensor]:
    """The elements that differ in some run with noise."""
    plain = Pass(MODEL, case.inputs, case.state, training=case.training, change_in=("forward",))
    moved = perturbed_passes(plain, range(nonsmooth.MOST_RUNS), noise / EPSILON)
    passes = (replace(one, change=p.Jitter(size=noise, turn=turn)) for turn, one in enumerate(moved))
    found = {name: torch.zeros_like(expected.reference64, dtype=torch.bool) for name, expected in integers.items()}
    for run in oracle.ask(case, passes):
        for name, expected in integers.items():
            found[name] |= run.outputs[name].to(expected.reference64.device) != expected.reference64
    return found
