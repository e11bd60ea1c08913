"""Runs that a right gradient passes and a plausible mistake does not, each on a small case.

An experiment puts one question to the candidate and answers with a diagnosis, or with None when all is well. A step
that raises is answered by the experiment's own code, since the plain product of the same case ran.
"""

from __future__ import annotations

from collections.abc import Callable

from grader.grading.backward.experiments._conditions_common import Cases
from grader.grading.backward.experiments.accumulation import accumulation_broken
from grader.grading.backward.experiments.conditions import (
    buffers_not_updated,
    double_backward_unsupported,
    ignores_needs_input_grad,
    inconsistent_with_forward,
    nondeterministic_grad,
    wrong_stream,
)
from grader.grading.backward.experiments.grad_outputs import (
    assumes_contiguous_grad_output,
    ignores_grad_output,
    undefined_grad_output,
)
from grader.grading.backward.experiments.state import saved_tensor_mutated, stale_saved_state
from grader.grading.candidate import Candidate
from grader.verdict.models import Diagnosis

__all__ = ["CAUSES", "LASTING", "TRAPS", "TRAPS_IN_EVAL", "Cases", "Experiment"]

Experiment = Callable[[Candidate, Cases], Diagnosis | None]

CAUSES: tuple[Experiment, ...] = (
    saved_tensor_mutated,
    accumulation_broken,
    ignores_grad_output,
    assumes_contiguous_grad_output,
    nondeterministic_grad,
)
"""Asked when the plain product is already wrong: what may be behind it."""

LASTING: tuple[Experiment, ...] = (saved_tensor_mutated, inconsistent_with_forward, accumulation_broken)
"""What these find leaves something behind, changes from call to call, or is in what the experiments after them compare
with, so that those would see that and mean something else."""

TRAPS: tuple[Experiment, ...] = (
    saved_tensor_mutated,
    inconsistent_with_forward,
    accumulation_broken,
    ignores_grad_output,
    assumes_contiguous_grad_output,
    stale_saved_state,
    ignores_needs_input_grad,
    buffers_not_updated,
    undefined_grad_output,
    wrong_stream,
    nondeterministic_grad,
    double_backward_unsupported,
)
"""Asked when the plain product is right."""

TRAPS_IN_EVAL: tuple[Experiment, ...] = TRAPS[: TRAPS.index(undefined_grad_output) + 1]
"""Asked again in eval(): a path of its own has mistakes of its own."""
