"""A timed result that is far from the reference's, given the same inputs: is it wrong, or is it rounding at a kink?

Where a value is within rounding of LeakyReLU's kink, one of two right results may take the other side. Such elements
are one in millions, so that one call has some and the next has none: how far the reference was from exact elsewhere
says nothing of this call. Its own exact values do, with runs whose inputs and parameters are moved by some roundings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from grader.stages import numerics
from grader.stages.cases import Case
from grader.stages.parking import is_large
from grader.stages.reference import ReferenceDesk
from grader.stages.timing.call import Draw
from grader.stages.trackers import Evaluation, Table, Trackers, track

RUNS = 16
"""What is as near to a kink as a candidate's rounding is on its other side in one of so many, with near certainty."""
ULPS = 32.0
"""By so much they are perturbed: Winograd's convolutions round several times as much as the direct sum does."""
SAMPLE = 1 << 20
"""Elements whose median stands for that of all."""
FEW = 64
"""Elements of which a kink may be behind most: of fewer the median is not asked for."""


class SecondLook:
    """At one call's draw; exact values are asked for once, when they are needed."""

    def __init__(self, desk: ReferenceDesk, case: Case, draw: Draw, *, tf32: bool) -> None:
        """`tf32` as the call was timed."""
        self._desk, self._case, self._draw, self._tf32 = desk, case, draw, tf32
        self._trackers: Trackers | None = None

    def explains(self, table: Table, name: str, found: torch.Tensor, reference: torch.Tensor, tolerance: float) -> bool:
        """Whether a tensor is right for all that: as near to exact as an untimed one must be, and half of it within
        `tolerance` of the reference's, relative to its RMS."""
        step = 1 + reference.numel() // SAMPLE
        apart, size = (found - reference).reshape(-1)[::step].abs(), reference.reshape(-1)[::step].abs()
        if reference.numel() >= FEW and not float(apart.median()) <= tolerance * float(size.square().mean().sqrt()):
            return False
        expected = self._expected(table, name)
        return expected is not None and numerics.check(expected, found).status == "passed"

    def _expected(self, table: Table, name: str) -> numerics.Expected | None:
        desk, case, draw = self._desk, self._case, self._draw
        traits = desk.traits(case)
        known = getattr(case, table)[name]
        # Of large ones every call has elements at a kink, and so had the case: its error speaks for all.
        if not traits.has_float64 or known is None or any(map(is_large, draw.inputs)):
            return None
        if self._trackers is None:
            wrt = case.wrt if draw.cotangents else ()

            def evaluate(model: str, inputs: Sequence[object], state: Mapping[str, torch.Tensor]) -> Evaluation:
                given = traits, inputs, state, draw.cotangents, wrt, case.training
                return desk.evaluate(model, *given, tf32=self._tf32)

            _, self._trackers = track(evaluate, traits, draw.inputs, draw.state, desk.device, runs=RUNS, ulps=ULPS)
        found = self._trackers.expected(table, lambda _: known.reduction_length)
        return found.get(name)
