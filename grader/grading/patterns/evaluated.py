"""Patterns that take runs of the reference: parts of grad_output."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader.grading.messages import MAX_LISTED
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.pattern import FIT, FREE, MAX_ELEMENTS, Pattern, Subject

Search = Callable[[Oracle, Sequence[Subject]], dict[str, Pattern]]
"""Runs the reference, and returns the patterns by name of gradients that these runs explain."""


def evaluated_patterns(oracle: Oracle, case: Case, subjects: Sequence[Subject]) -> dict[str, Pattern]:
    """The patterns of these gradients, by name, that runs of a changed case explain.

    Each run serves all gradients. As many as fit into the seconds of a stage: a deep network has a hundred parameters.
    Raises ProblemError.
    """
    if not subjects or not case.values_comparable or not oracle.runs_float64(case):
        return {}
    found: dict[str, Pattern] = {}
    end = oracle.clock() + oracle.budget.stage_seconds
    for search in _parts(case):
        open_ = [subject for subject in subjects if subject.name not in found]
        if not open_ or oracle.clock() > end:
            break
        found |= search(oracle, open_)
    return found


def _parts(case: Case) -> Iterator[Search]:
    """Searches for gradients in which only some rows of a grad_output count, or some count more than others."""
    zeros = {name: torch.zeros_like(value) for name, value in case.cotangents.items()}
    if len(case.cotangents) > 1:
        alone = {kept: zeros | {kept: value} for kept, value in case.cotangents.items()}
        split = [(f"the grad_output of {kept}", replace(case, cotangents=given)) for kept, given in alone.items()]
        yield partial(_contributions, split=split, along="outputs")
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
        yield partial(_contributions, split=split, along=f"dimension {dim}")


def _contributions(
    oracle: Oracle, subjects: Sequence[Subject], split: Sequence[tuple[str, Case]], along: str
) -> dict[str, Pattern]:
    """The patterns of gradients that are a sum of the contributions of the parts with other weights than 1."""
    large = [subject for subject in subjects if subject.right.numel() >= FREE * len(split)]
    columns = dict[str, list[torch.Tensor]]()
    for _, part in split if large else ():
        due = known_mistakes.reference_gradients(oracle, part)
        for subject in large:
            value = due.get(subject.name)
            column = torch.zeros_like(subject.right) if value is None else subject.beside(value)
            columns.setdefault(subject.name, []).append(_thinned(column))
    names = [name for name, _ in split]
    found = {subject.name: _weighted(subject, names, columns[subject.name], along) for subject in large}
    return {name: pattern for name, pattern in found.items() if pattern is not None}


def _weighted(subject: Subject, names: Sequence[str], columns: Sequence[torch.Tensor], along: str) -> Pattern | None:
    actual, error = _thinned(subject.actual), _thinned(subject.error)
    # Others may have any weight.
    felt = [at for at, column in enumerate(columns) if not subject.explained(column, error)]
    if not felt:
        return None
    names, columns = [names[at] for at in felt], [columns[at] for at in felt]
    matrix = torch.stack(columns, 1)
    weights = torch.linalg.lstsq(matrix, actual[:, None]).solution[:, 0]
    if not subject.explained(actual - matrix @ weights, error):
        return None
    off = [(name, float(w)) for name, w in zip(names, weights, strict=True) if abs(float(w) - 1) > 10 * FIT]
    none = [name for name, w in off if abs(w) < 10 * FIT]
    if not off:
        return None
    if along == "outputs":
        clauses = [f"does not depend on {name}" if name in none else f"takes {name} {w:.4g} times" for name, w in off]
        remedy = "add what that output's grad_output contributes"
        return Pattern(
            " and ".join(clauses), remedy if none else "look for that factor, as of a mean or a loss's weight"
        )
    if len(none) == len(off) and len(none) < len(names):
        kept = [name for name in names if name not in none]
        runs = [list(run) for used, run in itertools.groupby(names, lambda part: part in kept) if used]
        named = [run[0] if len(run) == 1 else f"{run[0].split()[0]} to {run[-1].split()[-1]}" for run in runs]
        which = f"index {kept[0]}" if len(kept) == 1 and "to" not in kept[0] else f"the indices {', '.join(named)}"
        place = " (the first)" if kept[0].startswith("0") and len(kept) == 1 else ""
        place = " (the last)" if kept == [names[-1]] else place
        text = f"takes only {which}{place} of grad_output's {along} into account: a part of the sum"
        return Pattern(
            text, f"sum over all of {along}, also what later steps or layers pass back; check the loop's bounds"
        )
    return None


def _thinned(value: torch.Tensor) -> torch.Tensor:
    """Elements at equal distances of one with too many for a fit, on the CPU; flat."""
    return value.flatten()[:: -(-value.numel() // MAX_ELEMENTS)].cpu()
