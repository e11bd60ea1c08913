"""Compares every element of a timed call's results with the reference's on the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.grading.candidate.placement import Placement
from grader.grading.compare import blocks, error_sizes, nonsmooth, small_elements, tolerance
from grader.grading.compare.blocks import is_large
from grader.grading.compare.expected import Expected
from grader.grading.messages import diagnose
from grader.grading.oracle.case import Case, Table, is_input
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.run_costs import Pace
from grader.grading.oracle.track import track
from grader.grading.oracle.trackers import Trackers
from grader.grading.timing import shipped_flags
from grader.grading.timing.calls import Call
from grader.grading.timing.draws import Source
from grader.verdict.models import Diagnosis

DIFFERENT_SHARE = 1e-3
"""Share of a timed output's integers other than its usual one that may differ: near ties fall either way. A choice."""
Distance = tuple[float, float] | None
"""As `error_sizes.distances` returns it."""
REMEDY = "compute every call from its own arguments and parameters, since the untimed cases passed"
REMEDY_WITH_FLAGS = (
    "check what runs while torch.backends.cudnn.allow_tf32 is True, PyTorch's default: with False, the same passed"
)


class Wrong(NamedTuple):
    """A tensor that is wrong in a timed call."""

    diagnosis: Diagnosis
    case: Case
    source: Source
    """The call's values."""


@dataclass(frozen=True)
class Comparison:
    """Compares the candidate's calls with the reference's."""

    oracle: Oracle
    case: Case
    operands: Mapping[str, str]
    """The candidate's operand names by the reference's."""
    places: Mapping[str, Placement]
    """Where the candidate keeps the reference's parameters and buffers."""
    tf32: bool
    """Whether both were timed with TensorFloat-32."""
    timed: bool = True
    """False at a size that is not timed, where few elements near a non-smooth point make a large error by chance: a
    gradient is compared if the forward did not round."""

    def difference_of(self, source: Source, reference: Call, candidate: Call) -> Wrong | None:
        """The first output, buffer or gradient that is wrong; None if all are right."""
        exact = ExactCheck(self.oracle, self.case, source, tf32=self.tf32)
        # Where flags let these calls alone round to TensorFloat-32, elements far below the largest are that rounding.
        small_too = not (self.tf32 and shipped_flags.applies(self.oracle, self.case))
        rows = with_distances(list(self._rows(reference, candidate)))
        errors = self._errors([row for row in rows if row.table == "outputs"], few_bits=source.few_bits)
        moved = cache(partial(self._moved_by_choices, rows, errors or {}))
        for row in rows:
            is_gradient = row.table == "gradients"
            if is_gradient and errors is None:
                continue
            known = (self._shipped() if row.table == "outputs" else errors) or {}
            passes = partial(exact.passes, row.table, row.name)
            fault = row.fault(known, passes, moved if is_gradient else lambda: 0.0)
            if fault is None and small_too:
                fault = row.small_fault(passes)
            if fault is not None:
                what, amount = fault
                name = row.expected.name
                diagnosis = diagnose(
                    "timed_gradient_wrong" if is_gradient else "timed_output_wrong",
                    (f"gradient of `{name}`" if is_gradient else name) + f" of a timed call {what}",
                    where=f"variant {self.case.variant}",
                    amount=amount,
                    remedy=REMEDY_WITH_FLAGS if source.few_bits else REMEDY,
                )
                return Wrong(diagnosis, self.case, source)
        return None

    def _moved_by_choices(self, rows: Sequence[Row], errors: Mapping[str, float]) -> float:
        """How far a few choices between near values move a right gradient of a large input, relative to it.

        Of millions of minima some fall otherwise by rounding, and of the few rows behind the baseline error none. Each
        moves a grad_output to another element: few elements of the input's gradient are off, all others are right, and
        what is summed over, as a weight's gradient, is off by about as much. With few rows, a choice moves a larger
        share: of 129,032 minima behind a 3 x 3 convolution of 64 channels, one moves 566 of 8 million elements, and
        the gradient by up to 0.8%.
        """
        moved, share = 0.0, DIFFERENT_SHARE / 10 if self.timed else DIFFERENT_SHARE
        for row in rows:
            # A smaller one has a spread over runs, by which `ExactCheck` judges it.
            large = is_input(row.name) and row.right.numel() > nonsmooth.MAX_ELEMENTS
            if row.table == "gradients" and row.distance is not None and large:
                off, size = row.distance
                bound = _bound(row.expected, size, row.baseline(errors))
                if off <= bound:  # a baseline error that has such choices itself, as the other gradient's may not
                    bound = _bound(row.expected, size, 0.0)
                # A larger error is no moved grad_output: one huge element would excuse any other gradient.
                if bound < off <= math.sqrt(share) * size and _few_are_far(row.right, row.compared, bound, share):
                    moved = max(moved, off / size)
        return moved

    def _rows(self, reference: Call, candidate: Call) -> Iterator[Row]:
        """What of a call is compared: outputs, buffers, gradients."""
        sources: list[tuple[Table, str, str, str]] = [
            ("outputs", name, p.output_source("t", name), p.output_source("t", name)) for name in self.case.outputs
        ]
        for name in self.case.buffers:
            if name in self.places:
                theirs = self.places[name].name
                sources.append(("buffers", name, p.state_source(MODEL, name), p.state_source(MODEL, theirs)))
        if "backward" in reference.times:
            for name, theirs in self.operands.items():
                if self.case.gradients[name] is not None and p.gradient_source("t", name) in reference.sealed:
                    sources.append(("gradients", name, p.gradient_source("t", name), p.gradient_source("t", theirs)))
        for table, name, ours, other in sources:
            actual = candidate.sealed.get(other)
            if actual is not None and table != "outputs" and name in self.places:
                actual = self.places[name].take(actual)
            yield Row(table, name, getattr(self.case, table)[name], reference.sealed[ours], actual)

    def _shipped(self) -> Mapping[str, float]:
        return shipped_flags.shipped_error(self.oracle, self.case, tf32=self.tf32)

    def _errors(self, outputs: Sequence[Row], *, few_bits: bool) -> Mapping[str, float] | None:
        """The baseline errors of gradients by name, by how far the outputs are off.

        None if none tells a right gradient from a wrong one.
        """
        shipped = self._shipped()
        if not few_bits:
            return shipped
        expected = shipped_flags.errors(self.oracle, self.case)
        distances = {
            row.expected.name: row.distance or (math.inf, 1.0)
            for row in outputs
            if row.expected.dtype.is_floating_point
        }
        if expected.forward_is_exact(distances):
            return {**shipped, **{name: error for name, error in expected.few_bits.items() if math.isfinite(error)}}
        return shipped if self.timed else None


class Row(NamedTuple):
    """One tensor of a call."""

    table: Table
    name: str
    expected: Expected
    right: torch.Tensor
    """The reference's."""
    actual: torch.Tensor | None
    """The candidate's."""
    distance: Distance = None
    """How far it is from the reference's; None for integers, and where a side is missing or not finite."""

    def baseline(self, errors: Mapping[str, float]) -> float:
        """The baseline error, relative: of these by name, or of the untimed case."""
        known = errors.get(self.expected.name)
        return self.expected.error_l2 / max(self.expected.norm, 1e-300) if known is None else known

    @property
    def compared(self) -> torch.Tensor:
        """The candidate's, in the reference's shape."""
        assert self.actual is not None
        return self.actual.view(self.right.shape)

    def fault(
        self,
        errors: Mapping[str, float],
        passes: Callable[[torch.Tensor], bool | None],
        moved: Callable[[], float] = lambda: 0.0,
    ) -> tuple[str, str | None] | None:
        """(what is wrong, by how much), or None if the tensor is right.

        Baseline errors are by name. `passes` tells by exact values, if there are any. A relative error of
        nonsmooth.FACTOR times `moved` is right as well: a sum of 16 elements of both signs is by chance less than half
        of its usual size, in 0.1 to 0.3% of draws, but no quarter.
        """
        if self.actual is None:  # a missing tensor stands for zeros, as in an untimed vector-Jacobian product
            is_noise = self.expected.is_zero and self.expected.error_l2 > 0  # in every draw, and not zero in one
            return ("is missing", None) if bool(self.right.any()) and not is_noise else None
        found: tuple[str, str | None] | None
        if not self.expected.rounds:
            found = _too_many_differ(self.expected, self.right, self.compared)
        elif self.distance is None:
            found = tolerance.NOT_FINITE_ALIKE, None
        else:
            found = _too_far(self.expected, *self.distance, self.baseline(errors))
            if found is not None:  # else nobody asks what choices move, which takes a pass over large tensors
                room = nonsmooth.FACTOR * moved() / tolerance.BASELINE_FACTOR_L2
                found = _too_far(self.expected, *self.distance, max(self.baseline(errors), room))
        return None if found is None or passes(self.compared) else found

    def small_fault(self, passes: Callable[[torch.Tensor], bool | None]) -> tuple[str, str] | None:
        """The fault of elements far below the largest ones, of which half of some size may be missing."""
        least, small = self.expected.least_judged, self.expected.slope * self.expected.rms
        if self.actual is None or least is None:
            return None
        zeros = partial(torch.zeros_like, self.right)
        found = small_elements.wrong(self.compared, self.right, zeros, small=small, share=0.5, least=least)
        if found is None or passes(self.compared) is not False:
            return None
        return "differs from the reference's", "in elements far below its largest ones"


def with_distances(rows: Sequence[Row]) -> list[Row]:
    """The rows with their distances, which are computed together."""
    rounded = [row for row in rows if row.actual is not None and row.expected.rounds]
    found = error_sizes.distances([row.compared for row in rounded], [row.right for row in rounded])
    measured = {(row.table, row.name): distance for row, distance in zip(rounded, found, strict=True)}
    return [row._replace(distance=measured.get((row.table, row.name))) for row in rows]


class ExactCheck:
    """Tells rounding at a non-smooth point from a wrong result, by exact values at one call's draw.

    The reference's error elsewhere says nothing of this call, in which another element may be at a non-smooth point.
    Exact values are computed once, when they are first needed, and compared as those of an untimed case are.
    """

    def __init__(self, oracle: Oracle, case: Case, source: Source, *, tf32: bool) -> None:
        """`tf32` as the call was timed."""
        self._oracle, self._case, self._source, self._tf32 = oracle, case, source, tf32

    def passes(self, table: Table, name: str, actual: torch.Tensor) -> bool | None:
        """Whether a tensor that is far from the reference's is right all the same.

        None if nothing tells: it is large or has no exact values.
        """
        untimed = getattr(self._case, table)[name]
        # Every call of a large one has elements at a non-smooth point, as the case had: its error speaks for all.
        if not self._oracle.traits(self._case).has_float64 or any(map(is_large, self._case.inputs)):
            return None
        expected = self._trackers.expected(table, lambda _: untimed.reduction_length).get(name)
        return None if expected is None else tolerance.passes(expected, actual)

    @cached_property
    def _trackers(self) -> Trackers:
        oracle, case, draw = self._oracle, self._case, self._source.values()
        wrt = case.wrt if draw.cotangents else ()
        plain = Pass(MODEL, draw.inputs, draw.state, draw.cotangents, wrt, case.training, tf32=self._tf32)
        ask, pace = partial(oracle.ask, case), Pace(oracle.budget.product_seconds, oracle.clock)
        # A library may have chosen not to round for the reference, which on few bits is all that differs.
        rounds = oracle.precision.meaning.tf32 or draw.few_bits
        return track(ask, plain, oracle.traits(case), oracle.device, pace=pace, tf32=rounds)[1]


def _too_many_differ(expected: Expected, reference: torch.Tensor, actual: torch.Tensor) -> tuple[str, str] | None:
    """The fault if more integers differ than the reference's own runs may."""
    count = int((actual != reference).sum())
    if not count:
        return None
    # Of a sparse result, as a one-hot code or the edges of a graph, a share of what is not its usual value.
    sample = reference.reshape(-1)[:: (reference.numel() >> 16) + 1]
    varied = int((reference != sample.long().median()).sum())
    if count <= tolerance.BASELINE_FACTOR_L2 * expected.ambiguous_count + DIFFERENT_SHARE * varied:
        return None
    return "differs from the reference's", f"in {count} of {reference.numel()} elements"


def _bound(expected: Expected, size: float, baseline_error: float) -> float:
    """How far from the reference's a tensor of this norm may be by rounding."""
    return tolerance.BASELINE_FACTOR_L2 * baseline_error * size + 2 * expected.rounding * size + 1e-30


def _few_are_far(reference: torch.Tensor, actual: torch.Tensor, bound: float, share: float) -> bool:
    """Whether all but a share of elements together are within the bound, and none of these is eight times its part."""
    each, far, rest = 8 * bound / math.sqrt(reference.numel()), 0, 0.0
    for right, value in blocks.in_blocks(reference, actual):
        error = nonsmooth.absolute_error(value, right)
        near = error <= each
        far += int((~near).sum())
        rest = math.hypot(rest, float((error * near).norm()))
    return far <= share * reference.numel() and rest <= bound


def _too_far(expected: Expected, distance: float, size: float, baseline_error: float) -> tuple[str, str] | None:
    """The fault if a tensor of this norm is further from the reference's than rounding allows."""
    bound = _bound(expected, size, baseline_error)
    if distance <= bound:
        return None
    error, allowed = distance / max(size, 1e-300), bound / max(size, 1e-300)
    return "differs from the reference's", f"by {error:.2g} (relative RMS) where {allowed:.2g} is allowed"
