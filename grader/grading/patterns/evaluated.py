"""Patterns that take runs of the reference: parts of grad_output, other parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from grader.grading.compare import known_mistakes
from grader.grading.oracle.case import Case, is_input
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import MAX_LISTED
from grader.grading.patterns.pattern import FIT, Pattern, Subject, number


def by_evaluation(oracle: Oracle, subject: Subject) -> Pattern | None:
    """The first of these patterns that explains the error. Raises ProblemError."""
    if not subject.case.values_comparable or not oracle.runs_float64(subject.case):
        return None
    return _parts(oracle, subject) or _changed_parameter(oracle, subject)


def _gradient(oracle: Oracle, subject: Subject, case: Case) -> torch.Tensor | None:
    """This operand's float64 gradient in a changed case; None if there is none."""
    found = known_mistakes.gradients(oracle, case, "none").get(subject.name)
    return None if found is None else found.reference64.cpu().double()


def _parts(oracle: Oracle, subject: Subject) -> Pattern | None:
    """Only some rows of a grad_output count, or some count more than others."""
    case = subject.case
    zeros = {name: torch.zeros_like(value) for name, value in case.cotangents.items()}
    if len(case.cotangents) > 1:
        alone = {kept: zeros | {kept: value} for kept, value in case.cotangents.items()}
        split = [(f"the grad_output of {kept}", replace(case, cotangents=given)) for kept, given in alone.items()]
        pattern = _contributions(oracle, subject, split, "outputs")
        if pattern is not None:
            return pattern
    name, given = max(case.cotangents.items(), key=lambda one: one[1].numel())
    for dim, extent in enumerate(given.shape):
        if extent < 2:
            continue
        inner = {1 + round((extent - 2) * part / (MAX_LISTED - 2)) for part in range(MAX_LISTED - 1)}
        edges = sorted({0, *inner, extent - 1, extent})
        split = []
        for start, end in itertools.pairwise(edges):
            mask = torch.zeros(extent, device=given.device)
            mask[start:end] = 1
            shaped = mask.view(-1, *[1] * (given.dim() - dim - 1))
            which = f"{start}" if end == start + 1 else f"{start} to {end - 1}"
            split.append((which, replace(case, cotangents=zeros | {name: given * shaped})))
        pattern = _contributions(oracle, subject, split, f"dimension {dim}")
        if pattern is not None:
            return pattern
    return None


def _contributions(oracle: Oracle, subject: Subject, split: Sequence[tuple[str, Case]], along: str) -> Pattern | None:
    """The tensor is a sum of the contributions of the parts with other weights than 1."""
    if subject.right.numel() < len(split) + 2:
        return None
    found = [(name, _gradient(oracle, subject, case)) for name, case in split]
    columns = [torch.zeros_like(subject.right) if value is None else value for _, value in found]
    matrix = torch.stack([column.flatten() for column in columns], 1)
    weights = torch.linalg.lstsq(matrix, subject.actual.flatten()[:, None]).solution[:, 0]
    residual = subject.actual.flatten() - matrix @ weights
    if not subject.explained(residual):
        return None
    off = [(name, float(w)) for (name, _), w in zip(split, weights, strict=True) if abs(float(w) - 1) > 10 * FIT]
    none = [name for name, w in off if abs(w) < 10 * FIT]
    if not off:
        return None
    every = len(split)
    if along == "outputs":
        clauses = [
            f"does not depend on {name}" if name in none else f"takes {name} {number(w)} times" for name, w in off
        ]
        return Pattern(" and ".join(clauses), "add the contribution of each output once")
    if len(none) == len(off) and len(none) < every:
        kept = [name for name, _ in split if name not in none]
        runs = [
            [name for name, _ in run] for used, run in itertools.groupby(split, lambda part: part[0] in kept) if used
        ]
        named = [run[0] if len(run) == 1 else f"{run[0].split()[0]} to {run[-1].split()[-1]}" for run in runs]
        which = f"index {kept[0]}" if len(kept) == 1 and "to" not in kept[0] else f"the indices {', '.join(named)}"
        place = " (the first)" if kept[0].startswith("0") and len(kept) == 1 else ""
        place = " (the last)" if kept == [split[-1][0]] else place
        text = f"takes only {which}{place} of grad_output's {along} into account: a part of the sum"
        return Pattern(text, f"sum over all of {along}; check the loop's bounds")
    return None


def _changed_parameter(oracle: Oracle, subject: Subject) -> Pattern | None:
    """It would be right with a parameter left out, transposed or flipped."""
    case = subject.case
    for name, text, remedy, changed in _changes(case):
        other = _gradient(oracle, subject, replace(case, state={**case.state, name: changed}))
        if other is not None and other.shape == subject.right.shape and subject.explained(subject.actual - other):
            return Pattern(f"would be right with `{name}` {text}", remedy)
    return None


def _changes(case: Case) -> Iterator[tuple[str, str, str, torch.Tensor]]:
    """(name, change, remedy, changed value) of each parameter."""
    for name in case.wrt:
        if is_input(name):
            continue
        value = case.state[name]
        yield name, "replaced by ones", f"use `{name}` wherever the reference does", torch.ones_like(value)
        if value.dim() < 2:
            continue
        if value.shape[-1] == value.shape[-2]:
            yield name, "transposed", f"check the order of the indices of `{name}`", value.mT.contiguous()
        if value.dim() > 2:
            remedy = f"check the order in which the window of `{name}` is read"
            yield name, "flipped", remedy, value.flip(tuple(range(2, value.dim())))
