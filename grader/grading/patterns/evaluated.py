"""Patterns that take runs of the reference: parts of grad_output."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader.grading.compare.scaling import least_squares
from grader.grading.messages import MAX_LISTED
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.pattern import FIT, FREE, MAX_ELEMENTS, Pattern, Subject

Search = Callable[[Oracle, Sequence[Subject]], dict[str, Pattern]]
"""Runs the reference, and returns the patterns by name of gradients that these runs explain."""
Again = Callable[[Case], Mapping[str, torch.Tensor | None]]
"""The candidate's gradients in another case, by name."""


def evaluated_patterns(oracle: Oracle, case: Case, subjects: Sequence[Subject], again: Again) -> dict[str, Pattern]:
    """The patterns of these gradients, by name, that runs of a changed case explain.

    Each run serves all gradients. As many as fit into the seconds of a stage: a deep network has a hundred parameters.
    Raises ProblemError and Stopped.
    """
    if not subjects or not case.values_comparable or not oracle.runs_float64(case):
        return {}
    found: dict[str, Pattern] = {}
    end = oracle.clock() + oracle.budget.stage_seconds
    for search in _parts(case, again):
        open_ = [subject for subject in subjects if subject.name not in found]
        if not open_ or oracle.clock() > end:
            break
        found |= search(oracle, open_)
    return found


def _parts(case: Case, again: Again) -> Iterator[Search]:
    """Searches for gradients in which only some rows of a grad_output count, or some count more than others."""
    zeros = {name: torch.zeros_like(value) for name, value in case.cotangents.items()}
    if len(case.cotangents) > 1:
        yield partial(_of_outputs, case, again)
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
        yield partial(_along, split=split, dim=dim)


def _of_outputs(case: Case, again: Again, oracle: Oracle, subjects: Sequence[Subject]) -> dict[str, Pattern]:
    """Patterns of gradients that take an output's grad_output with another weight than 1.

    A wrong term may be a multiple of another output's contribution, and a path may have no effect in one draw. So each
    weight is confirmed with that grad_output alone, in two draws; two elements more than weights are then enough.
    """
    alone = [{name: _alone(case, name) for name in case.cotangents}]
    fits = _fits(oracle, subjects, list(alone[0].items()), len(case.cotangents) + 2)
    if fits and not (case.released or oracle.is_slow(case)):
        other = oracle.case(case.variant, training=case.training, draw=1)
        alone.append({name: _alone(other, name) for name in case.cotangents})
    found = dict[str, Pattern]()
    for name, (_, off) in fits.items():
        if all(_has_weight(oracle, again, name, parts[output], weight) for parts in alone for output, weight in off):
            none = any(abs(weight) < 10 * FIT for _, weight in off)
            clauses = [
                f"does not depend on the grad_output of {output}"
                if abs(weight) < 10 * FIT
                else f"takes the grad_output of {output} {weight:.4g} times"
                for output, weight in off
            ]
            remedy = "add what that output's grad_output contributes"
            remedy = remedy if none else "look for that factor, as of a mean or a loss's weight"
            found[name] = Pattern(" and ".join(clauses), remedy)
    return found


def _alone(case: Case, kept: str) -> Case:
    """The case with the grad_output of one output; those of the others are zero."""
    given = {name: value if name == kept else torch.zeros_like(value) for name, value in case.cotangents.items()}
    return replace(case, cotangents=given)


def _has_weight(oracle: Oracle, again: Again, name: str, part: Case, weight: float) -> bool:
    """Whether the gradient is so many times the reference's in this case. Raises Stopped."""
    due, actual = known_mistakes.reference_gradients(oracle, part).get(name), again(part).get(name)
    if due is None or not bool(due.any()):
        return True
    found = 0.0 if actual is None else least_squares(actual.double().cpu(), due.double().cpu())
    return abs(found - weight) <= 10 * FIT


def _along(
    oracle: Oracle, subjects: Sequence[Subject], split: Sequence[tuple[str, Case]], dim: int
) -> dict[str, Pattern]:
    """Patterns of gradients that only some indices of grad_output's dimension contribute to."""
    found = dict[str, Pattern]()
    for subject, (names, off) in _fits(oracle, subjects, split, FREE * len(split)).items():
        none = [name for name, weight in off if abs(weight) < 10 * FIT]
        if len(none) < len(off) or len(none) == len(names):
            continue
        kept = [name for name in names if name not in none]
        runs = [list(run) for used, run in itertools.groupby(names, kept.__contains__) if used]
        named = [run[0] if len(run) == 1 else f"{run[0].split()[0]} to {run[-1].split()[-1]}" for run in runs]
        which = f"index {kept[0]}" if len(kept) == 1 and "to" not in kept[0] else f"the indices {', '.join(named)}"
        place = " (the first)" if kept[0].startswith("0") and len(kept) == 1 else ""
        place = " (the last)" if kept == [names[-1]] else place
        found[subject] = Pattern(
            f"takes only {which}{place} of grad_output's dimension {dim} into account: a part of the sum",
            f"sum over all of dimension {dim}, also what later steps or layers pass back; check the loop's bounds",
        )
    return found


_Weights = list[tuple[str, float]]


def _fits(
    oracle: Oracle, subjects: Sequence[Subject], split: Sequence[tuple[str, Case]], least: int
) -> dict[str, tuple[list[str], _Weights]]:
    """(parts that contribute, those of another weight than 1) of each gradient that is a weighted sum of the parts'.

    None of a gradient with fewer than `least` elements.
    """
    large = [subject for subject in subjects if subject.right.numel() >= least]
    columns = dict[str, list[torch.Tensor]]()
    for _, part in split if large else ():
        due = known_mistakes.reference_gradients(oracle, part)
        for subject in large:
            value = due.get(subject.name)
            column = torch.zeros_like(subject.right) if value is None else subject.beside(value)
            columns.setdefault(subject.name, []).append(_thinned(column))
    names = [name for name, _ in split]
    found = {subject.name: _fit(subject, names, columns[subject.name]) for subject in large}
    return {name: fit for name, fit in found.items() if fit is not None}


def _fit(subject: Subject, names: Sequence[str], columns: Sequence[torch.Tensor]) -> tuple[list[str], _Weights] | None:
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
    return (names, off) if off else None


def _thinned(value: torch.Tensor) -> torch.Tensor:
    """Elements at equal distances of one with too many for a fit, on the CPU; flat."""
    return value.flatten()[:: -(-value.numel() // MAX_ELEMENTS)].cpu()
