"""Are the results of a timed call right? Every element, beside the reference's of the same inputs and flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from grader.grading.candidate import MODEL
from grader.grading.compare import blocks, tolerance
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.timing import workload
from grader.grading.timing.call import Call, Draw
from grader.grading.timing.nonsmooth_retry import SecondLook
from grader.verdict.models import Diagnosis

DIFFERENT_SHARE = 1e-3
"""Of a timed output's integers: near ties fall either way."""
TIMED_TOLERANCE = 4.0
"""A timed output may differ from the reference's, run with the same flags on the same inputs, by this many times that
reference's own error against float64, beside what rounding explains."""


@dataclass(frozen=True)
class Comparison:
    """Of the candidate's calls with the reference's."""

    oracle: Oracle
    case: Case
    operands: Mapping[str, str]
    """Operand names of the reference to the candidate's."""
    names: Mapping[str, str]
    """Parameters and buffers, likewise."""
    tf32: bool
    """As both were timed."""

    def difference_of(self, draw: Draw, reference: Call, candidate: Call) -> Diagnosis | None:
        """Every element of every timed output, buffer and gradient, beside the reference's of the same inputs."""
        again = SecondLook(self.oracle, self.case, draw, tf32=self.tf32)
        pairs: list[tuple[Table, str, str, str]] = [
            ("outputs", name, f"output:t:{name}", f"output:t:{name}") for name in self.case.outputs
        ]
        for name in self.case.buffers:
            theirs = self.names.get(name)
            if theirs is not None:
                pairs.append(("buffers", name, f"state:{MODEL}:{name}", f"state:{MODEL}:{theirs}"))
        if "backward" in reference.times:
            for name, theirs in self.operands.items():
                if self.case.gradients[name] is not None and f"grad:t:{name}" in reference.sealed:
                    pairs.append(("gradients", name, f"grad:t:{name}", f"grad:t:{theirs}"))
        for table, name, ours, other in pairs:
            expected = getattr(self.case, table)[name]
            right, found = reference.sealed[ours], candidate.sealed.get(other)
            fault = self._difference(expected, right, found, partial(again.explains, table, name))
            if fault is not None:
                code, what = (
                    ("timed_gradient_wrong", f"gradient of `{expected.name}`")
                    if table == "gradients"
                    else ("timed_output_wrong", expected.name)
                )
                return diagnose(code, f"{what} of a timed call {fault}")
        return None

    def _difference(
        self,
        expected: tolerance.Expected,
        reference: torch.Tensor,
        found: torch.Tensor | None,
        rounding_explains: Callable[[torch.Tensor], bool],
    ) -> str | None:
        """In words; None where there is none."""
        if found is None:  # as in an untimed product, none will do for zeros
            return "is missing" if bool(reference.any()) else None
        found = found.view(reference.shape)
        if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
            fault = _too_many_differ(expected, reference, found)
            return None if fault is None or rounding_explains(found) else fault
        between = blocks.distance(found, reference)
        if between is None:
            if rounding_explains(found):
                return None
            return "has NaN or infinity where the reference has none, or the other way round"
        baseline_error = workload.shipped_error(self.oracle, self.case, tf32=self.tf32).get(expected.name)
        if baseline_error is None:
            baseline_error = expected.error_l2 / max(expected.norm, 1e-300)
        distance, size = between
        units = tolerance.ROUNDING_UNITS + expected.reduction_length**0.5
        bound = TIMED_TOLERANCE * baseline_error * size + 2 * units * tolerance.EPSILON * size + 1e-30
        if distance <= bound or rounding_explains(found):
            return None
        return (
            f"differs from the reference's by {distance / max(size, 1e-300):.2g} (relative RMS), "
            f"allowed is {bound / max(size, 1e-300):.2g}, while the untimed cases passed"
        )


def _too_many_differ(expected: tolerance.Expected, reference: torch.Tensor, found: torch.Tensor) -> str | None:
    """Integers: a share may differ, as the reference's own runs do."""
    count = int((found != reference).sum())
    if count <= TIMED_TOLERANCE * expected.ambiguous_count + DIFFERENT_SHARE * reference.numel():
        return None
    return f"differs from the reference's in {count} of {reference.numel()} elements, while the untimed cases passed"
