"""Where a reference draws random numbers: what of its gradients is not compared, and what is at other sizes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.control import reference_passes
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.random.own_differences import differences
from grader.verdict.models import Diagnosis

OPERANDS = 4
"""Whose gradients are asked at another size."""
MAX_BYTES = 64 << 20
"""Of grad_outputs there: beyond, asking takes longer than grading."""
UNTOLD = ("random_not_seeded", "not_comparable")


def inconsistent_elsewhere(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], asked: Case, so_far: Sequence[Diagnosis]
) -> list[Diagnosis]:
    """Whether gradients are those of the submission's own forward at the sizes that were not `asked` too, if that could
    be told of those. Raises Stopped."""
    if any(diagnosis.code in UNTOLD for diagnosis in so_far):
        return []
    for case in cases:
        large = sum(of.nbytes for of in case.cotangents.values()) > MAX_BYTES
        if case.values_comparable or case.variant == asked.variant or large:
            continue
        question = partial(differences, case=replace(case, forward_seed=secrets.randbits(62)), most=OPERANDS)
        found = question(candidate)
        if found is None or found.severity != "error":
            continue
        if reference_passes(oracle, ("other sizes", case.seed), question):
            return [found.model_copy(update={"message": f"{found.message} (variant {case.name})"})]
    return []


def unlike_its_forward(case: Case) -> Diagnosis:
    """Where the reference itself is not consistent with its forward."""
    message = (
        "the reference draws random numbers, and its gradients are not those of its own forward, as where it detaches: "
        f"they were not compared there (variant {case.name})"
    )
    return diagnose("not_comparable", message, severity="warning")
