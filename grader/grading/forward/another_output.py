"""Recognises an output that another one holds: all of it, or one index, as an earlier step's state."""

from __future__ import annotations

import torch

from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case
from grader.grading.patterns.pattern import MAX_ELEMENTS


def in_another_output(case: Case, name: str, wrong: torch.Tensor) -> tuple[str, str] | None:
    """The other output that holds a wrong one, after its name, and a remedy; None if none does."""
    due = case.outputs[name]
    for other, expected in case.outputs.items():
        held = expected.reference64
        if other == name or held.numel() > MAX_ELEMENTS or held.dtype.is_complex or not due.rounds:
            continue
        if held.shape == wrong.shape and tolerance.passes(due.around(held), wrong):
            return f"is `{other}`", "return the outputs in the order of the reference"
        for dim in range(held.dim() if held.dim() == wrong.dim() + 1 else 0):
            if held.shape[:dim] + held.shape[dim + 1 :] != wrong.shape or not held.numel():
                continue
            found, right = (_nearest(held, dim, value) for value in (wrong, due.reference64))
            if found != right and tolerance.passes(due.around(held.select(dim, found)), wrong):
                holds = tolerance.passes(due.around(held.select(dim, right)), due.reference64.to(wrong.dtype))
                what = f"is index {found} of dimension {dim} of `{other}`"
                return what, f"take index {right} there" if holds else "compute it as the reference does"
    return None


def _nearest(held: torch.Tensor, dim: int, value: torch.Tensor) -> int:
    """The index of a dimension at which a tensor is nearest to a value without that dimension."""
    apart = (held - value.to(held.device, held.dtype).unsqueeze(dim)).square()
    return int(apart.movedim(dim, 0).flatten(1).sum(1).argmin())
