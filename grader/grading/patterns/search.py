"""Searches all kinds of patterns, the plainest first."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import torch

from grader.errors import ReferenceLost, ReferenceOutOfMemory
from grader.grading.compare import nonsmooth, ties
from grader.grading.compare.blocks import LARGE_BYTES
from grader.grading.compare.expected import ELEMENT_TOLERANCE, Expected
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.slips import Slipped, output_slips, slips
from grader.grading.oracle.variations import outputs_of
from grader.grading.patterns.arrangement import arrangement
from grader.grading.patterns.elementwise import other_function, overwritten
from grader.grading.patterns.evaluated import evaluated_patterns
from grader.grading.patterns.large_tensors import place_of_large, rows_of_large, stretch
from grader.grading.patterns.pattern import (
    FREE,
    MAX_ELEMENTS,
    Pattern,
    Search,
    Subject,
    integer_inputs,
    place_of_search,
)
from grader.grading.patterns.regions import at_zeros, border, nearly, region, vague_region
from grader.grading.patterns.rounded import OtherError, accumulated, repeats
from grader.grading.patterns.terms import grouped, missing_factor, single_term

Searched = Literal["outputs", "gradients"]
Again = Callable[[Case], Mapping[str, torch.Tensor | None]]
"""The outputs or gradients of the candidate for another case."""
SEARCHES: Sequence[Search] = (
    arrangement,
    overwritten,
    region,
    single_term,
    missing_factor,
    border,
    grouped,
    accumulated,
    at_zeros,
    vague_region,
)
"""From the plainest to the least: a later one would also fit what an earlier one says in fewer words."""

ON_AN_EDGE = "give it the slope that the reference has exactly there; relu, for one, has 0 at 0"
"""The remedy for a gradient that is wrong on an edge of a function alone."""
SCALE = "check what shifts and scales it there, such as a mean, a variance or its eps"
"""The remedy for an output that is wrong by a shift or a factor."""


def find_pattern(
    oracle: Oracle, case: Case, name: str, actual: torch.Tensor, expected: Expected, other_error: OtherError
) -> Pattern | None:
    """The first pattern that explains the error of a gradient; None without one. `name` is the operand's.

    Raises Stopped.
    """
    subject = subject_of(case, name, actual, expected)
    if subject is None:
        return rows_of_large(integer_inputs(case), actual, expected) or place_of_large(actual, expected)
    tied = at_ties(subject)
    if tied is not None:
        return tied
    if not bool(subject.wrong.any()):  # only its norm is
        return _first((accumulated,), subject, oracle, case, other_error)
    return _first(SEARCHES, subject, oracle, case, other_error)


def _first(
    searches: Iterable[Search], subject: Subject, oracle: Oracle, case: Case, other_error: OtherError
) -> Pattern | None:
    """The first pattern that is found, of the tensor of this case. Raises Stopped."""
    for search in searches:
        pattern = search(subject)
        if pattern is not None and not (search is accumulated and repeats(subject, oracle, case, other_error)):
            return pattern
    return None


def at_ties(subject: Subject) -> Pattern | None:
    """Nearly all elements that are wrong are those that ties of the inputs decide."""
    tied = subject.expected.ties
    if tied is None or tied.operand is None:
        return None
    right = subject.right.abs()
    wrong = subject.error.abs() > ELEMENT_TOLERANCE * (right + right.square().mean().sqrt())
    elsewhere = wrong & ~tied.moved(subject.right, ELEMENT_TOLERANCE)
    # A tied element may be chosen by none of the runs: of three equal ones, 16 runs miss one in 0.15%.
    if int(elsewhere.sum()) * nonsmooth.MIN_ELEMENTS > int(wrong.sum()):
        return None
    operand = tied.operand.to(wrong.device)
    edge = torch.unique(operand[wrong])
    there = torch.isin(operand, edge)
    # Elements tie at more than the two values that are edges of a ReLU6.
    if 0 < len(edge) <= 2 and nearly(int(wrong.sum()), int(there.sum())) and not bool(there.all()):
        edges = " or ".join(f"{value:g}" for value in edge.tolist())
        return Pattern(f"is wrong only where {subject.case.shown([subject.name])} is {edges}", ON_AN_EDGE)
    return Pattern("is wrong at ties of the inputs only", ties.REMEDY)


def find_output_pattern(oracle: Oracle, case: Case, name: str, actual: torch.Tensor, again: Again) -> Pattern | None:
    """The first pattern that explains the error of an output; None without one.

    Raises Stopped.
    """
    if not case.comparable("outputs", name):
        return None
    subject = _subjects(case, "outputs", {name: actual}).get(name)
    if subject is None:
        return place_of_large(actual, case.outputs[name])
    found = (search(subject) for search in (arrangement, region, missing_factor))
    pattern = next((pattern for pattern in found if pattern is not None), None)
    pattern = pattern or _slip_patterns(oracle, case, "outputs", {name: subject}, again).get(name)
    if pattern is not None:
        return pattern

    def other_error(other: Case) -> torch.Tensor | None:
        value, due = again(other).get(name), outputs_of(oracle, other)[name].reference64
        return None if value is None else value - due.to(value.device)

    searches = (other_function, border, _grouped_output, accumulated, at_zeros, vague_region)
    return _first(searches, subject, oracle, case, other_error) or stretch(actual, case.outputs[name])


def _grouped_output(subject: Subject) -> Pattern | None:
    pattern = grouped(subject)
    return replace(pattern, remedy=SCALE) if pattern is not None and "within each" in pattern.text else pattern


def patterns_by_runs(
    oracle: Oracle,
    case: Case,
    wrong: Mapping[str, torch.Tensor | None],
    again: Again,
    others: Mapping[str, torch.Tensor | None],
) -> dict[str, Pattern]:
    """The patterns, by name, of gradients that runs of the reference with a change or a mistake explain.

    `others` are wrong in a form of their own, such as a multiple, and have a pattern if a mistake that explains one of
    the first explains them too. Raises Stopped.
    """
    subjects = _subjects(case, "gradients", wrong)
    found = evaluated_patterns(oracle, case, list(subjects.values()), again)
    subjects = {name: subject for name, subject in subjects.items() if name not in found}
    small = {name: subject for name, subject in subjects.items() if subject.right.numel() <= MAX_ELEMENTS}
    # A large one takes most of the time of a run.
    also = _subjects(case, "gradients", others)
    return found | _slip_patterns(oracle, case, "gradients", small or subjects, again, also)


def _slip_patterns(
    oracle: Oracle,
    case: Case,
    table: Searched,
    subjects: Mapping[str, Subject],
    again: Again,
    also: Mapping[str, Subject] = MappingProxyType({}),
) -> dict[str, Pattern]:
    """The patterns, by name, of outputs or gradients that one mistake in the reference explains.

    Of several, the one that explains most tensors. A few numbers may be explained by chance: theirs is a mistake that
    explains a larger tensor too, or these numbers in another draw. Those in `also` have the mistake of another tensor.
    """
    few = {name: subject for name, subject in subjects.items() if subject.right.numel() < FREE}
    explaining = _explaining(oracle, case, table, subjects, also)
    explained = Counter(slip.text for those in explaining.values() for slip in those)
    found = {
        name: max(those, key=lambda slip: (explained[slip.text], len(slip.gradients)))
        for name, those in explaining.items()
        if those and name not in few
    }
    sure = {slip.text for slip in found.values()}
    sure |= {slip.text for those in explaining.values() for slip in those if _large(also, slip.gradients)}
    if sure:
        found |= {name: slip for name in few for slip in reversed(explaining[name]) if slip.text in sure}
    elif few and (len(few) == len(subjects) or any(explaining.values())):
        found = _in_two_draws(oracle, case, table, few, explaining, again)
    found |= {name: slip for slip in reversed(found.values()) for name in slip.gradients}
    return {name: Pattern(f"is that {slip.what}", slip.remedy, calls=slip.calls) for name, slip in found.items()}


def _in_two_draws(
    oracle: Oracle,
    case: Case,
    table: Searched,
    few: Mapping[str, Subject],
    explaining: Mapping[str, list[Slipped]],
    again: Again,
) -> dict[str, Slipped]:
    """The mistakes, by name, that explain a few numbers in two draws; these are `explaining` them in the first.

    In one draw of 25 a mistake changes a loss by no more than rounding does. FREE draws have FREE numbers at least; a
    large case has two, which are judged anyway.
    """
    most = FREE if case.nbytes < LARGE_BYTES else 2
    draws = (oracle.case(case.variant, training=case.training, draw=draw) for draw in range(most))
    for other in (one for one in draws if one.seed != case.seed and not one.released):
        if not any(explaining[name] for name in few) and all(subject.shows(subject.size) for subject in few.values()):
            break
        values = again(other)
        few = _subjects(other, table, {name: values.get(name) for name in few})
        now = _explaining(oracle, other, table, few)
        again_there = {name: {slip.text for slip in those} for name, those in now.items()}
        found = {name: slip for name in few for slip in reversed(explaining[name]) if slip.text in again_there[name]}
        if found:
            return found
        explaining = {name: [*explaining[name], *now[name]] for name in few}
    return {}


def _large(subjects: Mapping[str, Subject], names: Iterable[str]) -> bool:
    """Whether one of these tensors has so many elements that no mistake explains it by chance."""
    return any(subjects[name].right.numel() >= FREE for name in names)


def _explaining(
    oracle: Oracle,
    case: Case,
    table: Searched,
    subjects: Mapping[str, Subject],
    also: Mapping[str, Subject] = MappingProxyType({}),
) -> dict[str, list[Slipped]]:
    """The mistakes that explain each tensor, up to the one with which none is left unexplained.

    Of their gradients, they keep the names of those in `also` that they explain.
    """
    found: dict[str, list[Slipped]] = {name: [] for name in subjects}
    large = [name for name, subject in subjects.items() if subject.right.numel() >= FREE]
    made = output_slips(oracle, case) if table == "outputs" else slips(oracle, case, {*subjects, *also})
    for slip in _survived(made) if subjects else ():
        for name, subject in subjects.items():
            value = getattr(slip, table).get(name)
            if _explains(subject, value):
                too = {other: None for other, theirs in slip.gradients.items() if _explains(also.get(other), theirs)}
                found[name].append(slip._replace(gradients=too, outputs={}))
        if large and all(found.values()):
            break
    return found


def _explains(subject: Subject | None, value: torch.Tensor | None) -> bool:
    """Whether a wrong tensor is this one."""
    return subject is not None and value is not None and subject.explained(subject.actual - subject.beside(value))


def _survived(made: Iterator[Slipped]) -> Iterator[Slipped]:
    """The slips up to one that ends the reference's process or takes all memory, which is not the problem's fault."""
    with contextlib.suppress(ReferenceLost, ReferenceOutOfMemory):
        yield from made


def _subjects(case: Case, table: Searched, actual: Mapping[str, torch.Tensor | None]) -> dict[str, Subject]:
    """Outputs or gradients beside the right ones, by name; an output's are searched without what follows from it."""
    alone = replace(case, cotangents={}, outputs={}, gradients={}) if table == "outputs" else case
    return {
        name: subject
        for name, value in actual.items()
        if value is not None and (expected := getattr(case, table)[name]) is not None
        if (subject := subject_of(alone, name, value, expected)) is not None
    }


def subject_of(case: Case, name: str, actual: torch.Tensor, expected: Expected) -> Subject | None:
    """The tensor beside the right one; None if it is too large, complex or not finite.

    `name` is the operand's in the case, or the output's.
    """
    real = expected.dtype.is_floating_point and not actual.is_complex()
    if not real or not actual.numel() or place_of_search(actual) is None or not bool(actual.isfinite().all()):
        return None
    return Subject(case, actual, expected, name)
