"""Searches all kinds of patterns, the plainest first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from grader.errors import ReferenceLost, ReferenceOutOfMemory
from grader.grading.compare import nonsmooth, ties
from grader.grading.compare.expected import ELEMENT_TOLERANCE, Expected
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.slips import Slipped, output_slips, slips
from grader.grading.patterns.arrangement import arrangement
from grader.grading.patterns.elementwise import function_of_one, other_function, overwritten
from grader.grading.patterns.evaluated import evaluated_patterns
from grader.grading.patterns.large_tensors import rows_of_large, stretch
from grader.grading.patterns.pattern import (
    FREE,
    MAX_ELEMENTS,
    Pattern,
    Search,
    Subject,
    integer_inputs,
    place_of_search,
)
from grader.grading.patterns.regions import border, region, vague_region
from grader.grading.patterns.rounded import accumulated
from grader.grading.patterns.terms import grouped, missing_factor, single_term

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
    function_of_one,
    accumulated,
    vague_region,
)
"""From the plainest to the least: a later one would also fit what an earlier one says in fewer words."""

SCALE = "check what shifts and scales it there, such as a mean, a variance or its eps"
"""The remedy for an output that is wrong by a shift or a factor."""


def find_pattern(oracle: Oracle, case: Case, name: str, actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The first pattern that explains the error of a gradient; None without one. `name` is the operand's."""
    subject = subject_of(oracle, case, name, actual, expected)
    if subject is None:
        indices = integer_inputs(case, _arguments(oracle, case))
        return rows_of_large(indices, actual, expected) or stretch(actual, expected)
    tied = at_ties(subject)
    if tied is not None:
        return tied
    if not bool(subject.wrong.any()):  # only its norm is
        return accumulated(subject)
    return next((pattern for search in SEARCHES if (pattern := search(subject)) is not None), None)


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
    return Pattern("is wrong at ties of the inputs only", ties.REMEDY)


def find_output_pattern(oracle: Oracle, case: Case, name: str, actual: torch.Tensor, again: Again) -> Pattern | None:
    """The first pattern that explains the error of an output; None without one.

    Raises Stopped.
    """
    subject = _of_output(oracle, case, name, actual)
    if not case.comparable("outputs", name):
        return None
    if subject is None:
        return stretch(actual, case.outputs[name])
    found = (search(subject) for search in (arrangement, region, missing_factor))
    pattern = next((pattern for pattern in found if pattern is not None), None)
    pattern = pattern or _output_slip(oracle, case, subject, again)
    if pattern is not None:
        return pattern
    for search in (other_function, border, grouped, accumulated, vague_region):
        pattern = search(subject)
        if pattern is not None:
            return replace(pattern, remedy=SCALE) if search is grouped and "within each" in pattern.text else pattern
    return stretch(actual, case.outputs[name])


def _of_output(oracle: Oracle, case: Case, name: str, actual: torch.Tensor | None) -> Subject | None:
    if actual is None:
        return None
    alone = replace(case, cotangents={}, outputs={}, gradients={})
    return subject_of(oracle, alone, name, actual, case.outputs[name])


def _output_slip(oracle: Oracle, case: Case, subject: Subject, again: Again) -> Pattern | None:
    """The pattern of an output that one mistake in the reference's forward explains; None without one.

    A few numbers may be explained by chance, and then another draw decides.
    """
    found = _explaining(oracle, case, subject)
    first = next(found, None)
    if first is not None and subject.actual.numel() < FREE:
        alike = _explaining_another_draw(oracle, case, subject.name, again)
        first = next((slip for slip in (first, *found) if slip.what in alike), None)
    return None if first is None else Pattern(f"is that {first.what}", first.remedy)


def _explaining_another_draw(oracle: Oracle, case: Case, name: str, again: Again) -> Collection[str]:
    """The mistakes that explain the output in another draw of the case."""
    other = _another_draw(oracle, case)
    if other is None:
        return ()
    subject = _of_output(oracle, other, name, again(other)[name])
    return () if subject is None else {slip.what for slip in _explaining(oracle, other, subject)}


def _another_draw(oracle: Oracle, case: Case) -> Case | None:
    draws = (oracle.case(case.variant, training=case.training, draw=draw) for draw in range(2))
    return next((one for one in draws if one.seed != case.seed and not one.released), None)


def _explaining(oracle: Oracle, case: Case, subject: Subject) -> Iterator[Slipped]:
    for slip in _survived(output_slips(oracle, case)):
        value = slip.outputs.get(subject.name)
        if value is not None and subject.explained(subject.actual - subject.beside(value)):
            yield slip


def patterns_by_runs(
    oracle: Oracle, case: Case, wrong: Mapping[str, torch.Tensor | None], again: Again
) -> dict[str, Pattern]:
    """The patterns, by name, of gradients that runs of the reference with a change or a mistake explain.

    Raises Stopped.
    """
    subjects = _of_gradients(oracle, case, wrong)
    found = evaluated_patterns(oracle, case, list(subjects.values()))
    subjects = {name: of for name, of in subjects.items() if name not in found}
    small = {name: of for name, of in subjects.items() if of.right.numel() <= MAX_ELEMENTS}
    # A large one takes most of the time of a run.
    return found | _slip_patterns(oracle, case, small or subjects, again)


def _of_gradients(oracle: Oracle, case: Case, wrong: Mapping[str, torch.Tensor | None]) -> dict[str, Subject]:
    return {
        name: subject
        for name, value in wrong.items()
        if value is not None and (expected := case.gradients[name]) is not None
        if (subject := subject_of(oracle, case, name, value, expected)) is not None
    }


def _slip_patterns(oracle: Oracle, case: Case, subjects: Mapping[str, Subject], again: Again) -> dict[str, Pattern]:
    """Those that one mistake in the reference explains.

    A few numbers may be explained by chance: theirs is a mistake that explains a larger gradient too, or these numbers
    in another draw.
    """
    few = [name for name, of in subjects.items() if of.right.numel() < FREE]
    explaining = _explaining_each(oracle, case, subjects)
    found = {name: those[0] for name, those in explaining.items() if those and name not in few}
    sure = {slip.what for slip in found.values()}
    other = _another_draw(oracle, case) if not found and any(explaining.values()) else None
    if other is not None:
        values = again(other)
        elsewhere = _of_gradients(oracle, other, {name: values.get(name) for name in few})
        sure = {slip.what for those in _explaining_each(oracle, other, elsewhere).values() for slip in those}
    for name in few:
        slip = next((slip for slip in explaining[name] if slip.what in sure), None)
        if slip is not None:
            found[name] = slip
    return {name: Pattern(f"is that {slip.what}", slip.remedy) for name, slip in found.items()}


def _explaining_each(oracle: Oracle, case: Case, subjects: Mapping[str, Subject]) -> dict[str, list[Slipped]]:
    """The mistakes that explain each gradient: the first, but all of one with few elements."""
    found: dict[str, list[Slipped]] = {name: [] for name in subjects}
    large = [name for name, of in subjects.items() if of.right.numel() >= FREE]
    for slip in _survived(slips(oracle, case, subjects)) if subjects else ():
        for name, subject in subjects.items():
            value = slip.gradients.get(name)
            if value is None or (name in large and found[name]):
                continue
            if subject.explained(subject.actual - subject.beside(value)):
                found[name].append(slip._replace(gradients={}, outputs={}))
        if large and all(found.values()):
            break
    return found


def _survived(made: Iterator[Slipped]) -> Iterator[Slipped]:
    """The slips up to one that ends the reference's process or takes all memory, which is not the problem's fault."""
    with contextlib.suppress(ReferenceLost, ReferenceOutOfMemory):
        yield from made


def subject_of(oracle: Oracle, case: Case, name: str, actual: torch.Tensor, expected: Expected) -> Subject | None:
    """The tensor beside the right one; None if it is too large, complex or not finite.

    `name` is the operand's in the case, or the output's.
    """
    real = expected.dtype.is_floating_point and not actual.is_complex()
    if not real or not actual.numel() or place_of_search(actual) is None or not bool(actual.isfinite().all()):
        return None
    return Subject(case, actual, expected, name, _arguments(oracle, case))


def _arguments(oracle: Oracle, case: Case) -> list[str]:
    return [oracle.module.argument_name(index) for index in range(len(case.inputs))]
