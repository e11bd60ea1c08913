"""Finds problems that a constant passes, or the outputs for other inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from grader.grading.compare import tolerance
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle


def trivial_outputs(oracle: Oracle, case: Case) -> str | None:
    """Which outputs would pass without being computed, or None. Raises ProblemError."""

    def ask() -> str | None:
        others = questions.redrawn(oracle, case)
        if all(_passes(case, {name: _level(value) for name, value in other.items()}) for other in others):
            values = (_level(value).flatten()[0].item() for value in others[0].values() if value.numel())
            shown = ", ".join(f"{value:.6g}" for value in values)
            return f"outputs filled with a constant pass the tolerance: {shown}"
        varies = any(not of.fixed for of in questions.structures(oracle, case).values())
        if varies and all(_passes(case, other) for other in others):
            return "other inputs give the same outputs within the tolerance: stored outputs pass"
        return None

    return oracle.remember(("trivial", case.seed, case.training), ask)


def _passes(case: Case, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether a submission that returned these outputs would pass, wherever the reference is smooth.

    Otherwise outputs for other inputs would each ask for the runs behind the spread.
    """
    return all(
        outputs[name].shape == expected.reference64.shape
        and tolerance.check(replace(expected, spread=None), outputs[name]).status == "passed"
        for name, expected in case.outputs.items()
    )


def _level(value: torch.Tensor) -> torch.Tensor:
    """The tensor filled with the constant that fits best: the mean, or the most frequent integer."""
    if not value.numel():
        return value
    middle = value.mean() if value.is_floating_point() or value.is_complex() else value.flatten().mode().values
    return middle.expand(value.shape)
