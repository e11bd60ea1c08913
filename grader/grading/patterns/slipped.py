"""Whether wrong gradients are those of the reference with one mistake in it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.slips import slips
from grader.grading.patterns.pattern import FREE, Pattern
from grader.grading.patterns.search import subject_of


def slip_patterns(oracle: Oracle, case: Case, wrong: Mapping[str, torch.Tensor | None]) -> dict[str, Pattern]:
    """The patterns, by name, of gradients that are the reference's with a slip: the first one of each."""
    subjects = {
        name: subject
        for name, value in wrong.items()
        if value is not None and (expected := case.gradients[name]) is not None and value.numel() >= FREE
        if (subject := subject_of(oracle, case, name, value, expected)) is not None
    }
    found: dict[str, Pattern] = {}
    for slip in slips(oracle, case) if subjects else ():
        for name, subject in subjects.items():
            value = slip.gradients.get(name)
            if name not in found and value is not None and subject.explained(subject.actual - value.cpu().double()):
                found[name] = Pattern(f"is that {slip.what}", slip.remedy)
        if len(found) == len(subjects):
            break
    return found
