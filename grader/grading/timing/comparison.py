"""Compares every element of a timed call's results with the reference's on the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from grader.grading.candidate import MODEL
from grader.grading.compare import blocks, tolerance
from grader.grading.compare.blocks import is_large
from grader.grading.compare.placement import Place
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.evaluation import Pass
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.pace import Pace
from grader.grading.oracle.trackers import Trackers, track
from grader.grading.outcome import diagnose
from grader.grading.timing import shipped_flags, workload
from grader.grading.timing.calls import Call, Draw
from grader.verdict.models import Diagnosis

DIFFERENT_SHARE = 1e-3
"""Share of a timed output's integers that may differ: near ties fall either way. A choice."""
REMEDY = "compute every call from its own arguments and parameters, since the untimed cases passed"
REMEDY_WITH_FLAGS = (
    "check what runs while torch.backends.cudnn.allow_tf32 is True, PyTorch's default: with False, the same passed"
)


@dataclass(frozen=True)
class Comparison:
    """Compares the candidate's calls with the reference's."""

    oracle: Oracle
    case: Case
    operands: Mapping[str, str]
    """The candidate's operand names by the reference's."""
    places: Mapping[str, Place]
    """Where the candidate keeps the reference's parameters and buffers."""
    tf32: bool
    """Whether both were timed with TensorFloat-32."""
    timed: bool = True
    """False at a size that is not timed, where few elements near a non-smooth point make a large error by chance: a
    gradient is compared if the forward did not round."""

    def difference_of(self, draw: Draw, reference: Call, candidate: Call) -> Diagnosis | None:
        """The first output, buffer or gradient that is wrong; None if all are right."""
        exact = ExactCheck(self.oracle, self.case, draw, tf32=self.tf32)
        pairs: list[tuple[Table, str, str, str]] = [
            ("outputs", name, f"output:t:{name}", f"output:t:{name}") for name in self.case.outputs
        ]
        for name in self.case.buffers:
            if name in self.places:
                pairs.append(("buffers", name, f"state:{MODEL}:{name}", f"state:{MODEL}:{self.places[name].name}"))
        if "backward" in reference.times:
            for name, theirs in self.operands.items():
                if self.case.gradients[name] is not None and f"grad:t:{name}" in reference.sealed:
                    pairs.append(("gradients", name, f"grad:t:{name}", f"grad:t:{theirs}"))
        errors = self._errors(draw, reference, candidate)
        for table, name, ours, other in pairs:
            expected = getattr(self.case, table)[name]
            if table == "gradients" and errors is None:
                continue
            right, actual = reference.sealed[ours], candidate.sealed.get(other)
            if actual is not None and table != "outputs" and name in self.places:
                actual = self.places[name].take(actual)
            error = None if errors is None else errors.get(expected.name)
            if table == "outputs":
                error = self._shipped().get(expected.name)
            fault = self._fault(expected, right, actual, partial(exact.explains, table, name), error)
            if fault is not None:
                what, amount = fault
                is_gradient = table == "gradients"
                return diagnose(
                    "timed_gradient_wrong" if is_gradient else "timed_output_wrong",
                    (f"gradient of `{expected.name}`" if is_gradient else expected.name) + f" of a timed call {what}",
                    where=f"variant {self.case.variant}",
                    amount=amount,
                    remedy=REMEDY_WITH_FLAGS if draw.few_bits else REMEDY,
                )
        return None

    def _shipped(self) -> Mapping[str, float]:
        return workload.shipped_error(self.oracle, self.case, tf32=self.tf32)

    def _errors(self, draw: Draw, reference: Call, candidate: Call) -> Mapping[str, float] | None:
        """The baseline errors of gradients by name; None if none tells a right one from a wrong one."""
        if not draw.few_bits:
            return self._shipped()
        expected, distances = shipped_flags.errors(self.oracle, self.case), {}
        for name, output in self.case.outputs.items():
            right, actual = reference.sealed[f"output:t:{name}"], candidate.sealed.get(f"output:t:{name}")
            if output.dtype.is_floating_point and actual is not None:
                distances[output.name] = blocks.distance(actual.view(right.shape), right) or (math.inf, 1.0)
        shipped = self._shipped()
        if expected.forward_is_exact(distances):
            return {**shipped, **{name: error for name, error in expected.few_bits.items() if math.isfinite(error)}}
        return shipped if self.timed else None

    def _fault(
        self,
        expected: tolerance.Expected,
        reference: torch.Tensor,
        actual: torch.Tensor | None,
        rounding_explains: Callable[[torch.Tensor], bool],
        baseline_error: float | None,
    ) -> tuple[str, str | None] | None:
        """(the fault, its amount), or None if the tensor is right."""
        if actual is None:  # a missing tensor stands for zeros, as in an untimed vector-Jacobian product
            return ("is missing", None) if bool(reference.any()) else None
        actual = actual.view(reference.shape)
        if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
            fault = _too_many_differ(expected, reference, actual)
            return None if fault is None or rounding_explains(actual) else fault
        between = blocks.distance(actual, reference)
        if between is None:
            if rounding_explains(actual):
                return None
            return "has NaN or infinity where the reference has none, or the other way round", None
        if baseline_error is None:
            baseline_error = expected.error_l2 / max(expected.norm, 1e-300)
        distance, size = between
        units = tolerance.ROUNDING_UNITS + expected.reduction_length**0.5
        bound = tolerance.BASELINE_FACTOR_L2 * baseline_error * size + 2 * units * tolerance.EPSILON * size + 1e-30
        if distance <= bound or rounding_explains(actual):
            return None
        error, allowed = distance / max(size, 1e-300), bound / max(size, 1e-300)
        return "differs from the reference's", f"by {error:.2g} (relative RMS) where {allowed:.2g} is allowed"


class ExactCheck:
    """Tells rounding at a non-smooth point from a wrong result, by exact values at one call's draw.

    The reference's error elsewhere says nothing of this call, in which another element may be at a non-smooth point.
    Exact values are computed once, when they are first needed, and compared as those of an untimed case are.
    """

    def __init__(self, oracle: Oracle, case: Case, draw: Draw, *, tf32: bool) -> None:
        """`tf32` as the call was timed."""
        self._oracle, self._case, self._draw, self._tf32 = oracle, case, draw, tf32
        self._trackers: Trackers | None = None

    def explains(self, table: Table, name: str, actual: torch.Tensor) -> bool:
        """Whether a tensor that is far from the reference's is right all the same."""
        expected = self._expected(table, name)
        return expected is not None and tolerance.check(expected, actual).status == "passed"

    def _expected(self, table: Table, name: str) -> tolerance.Expected | None:
        oracle, case, draw = self._oracle, self._case, self._draw
        traits = oracle.traits(case)
        untimed = getattr(case, table)[name]
        # Every call of a large one has elements at a non-smooth point, as the case had: its error speaks for all.
        if not traits.has_float64 or untimed is None or any(map(is_large, draw.inputs)):
            return None
        if self._trackers is None:
            wrt = case.wrt if draw.cotangents else ()
            plain = Pass(MODEL, draw.inputs, draw.state, draw.cotangents, wrt, case.training, tf32=self._tf32)
            ask, pace = partial(oracle.ask, case), Pace(oracle.budget.product, oracle.clock)
            # A library may have chosen not to round for the reference, which on few bits is all that differs.
            rounds = oracle.precision.meaning.tf32 or draw.few_bits
            _, self._trackers = track(ask, plain, traits, oracle.device, pace=pace, tf32=rounds)
        return self._trackers.expected(table, lambda _: untimed.reduction_length).get(name)


def _too_many_differ(
    expected: tolerance.Expected, reference: torch.Tensor, actual: torch.Tensor
) -> tuple[str, str] | None:
    """The fault if more integers differ than the reference's own runs may."""
    count = int((actual != reference).sum())
    if count <= tolerance.BASELINE_FACTOR_L2 * expected.ambiguous_count + DIFFERENT_SHARE * reference.numel():
        return None
    return "differs from the reference's", f"in {count} of {reference.numel()} elements"
