"""A timed result that is far from the reference's, given the same inputs: is it wrong, or is it rounding at a kink?

How far the reference was from exact elsewhere says nothing of this call, in which another element may be at a kink. Its
own exact values do, held against as those of an untimed case are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.evaluation import Evaluation, evaluate
from grader.grading.oracle.large import is_large
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.trackers import Trackers, track
from grader.grading.timing.call import Draw


class SecondLook:
    """At one call's draw; exact values are asked for once, when they are needed."""

    def __init__(self, oracle: Oracle, case: Case, draw: Draw, *, tf32: bool) -> None:
        """`tf32` as the call was timed."""
        self._desk, self._case, self._draw, self._tf32 = oracle, case, draw, tf32
        self._trackers: Trackers | None = None

    def explains(self, table: Table, name: str, found: torch.Tensor) -> bool:
        """Whether a tensor is right for all that."""
        expected = self._expected(table, name)
        return expected is not None and tolerance.check(expected, found).status == "passed"

    def _expected(self, table: Table, name: str) -> tolerance.Expected | None:
        oracle, case, draw = self._desk, self._case, self._draw
        traits = oracle.traits(case)
        known = getattr(case, table)[name]
        # Of large ones every call has elements at a kink, and so had the case: its error speaks for all.
        if not traits.has_float64 or known is None or any(map(is_large, draw.inputs)):
            return None
        if self._trackers is None:
            wrt = case.wrt if draw.cotangents else ()

            def run(
                model: str, inputs: Sequence[object], state: Mapping[str, torch.Tensor], *, streamed: bool = False
            ) -> Evaluation:
                oracle.ready(case, model)
                given = traits, inputs, state, draw.cotangents, wrt, case.training
                return evaluate(oracle, model, *given, tf32=self._tf32, streamed=streamed)

            _, self._trackers = track(run, traits, draw.inputs, draw.state, oracle.device)
        found = self._trackers.expected(table, lambda _: known.reduction_length)
        return found.get(name)
