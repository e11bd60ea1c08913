"""A smaller variant of a problem that has only one size: the same inputs with fewer rows.

KernelBench's problems have no small sizes, and their inputs take up to 16 GiB. Most checks need only the first rows of
such inputs: an error in the handling of a layout, a saved tensor or a frozen operand does not depend on the batch size.
The plain forward, the backward and the timed calls use the full size. The reference decides whether it takes fewer
rows; a submission that does not is checked at the full size instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from grader.catalog.problem_module import FULL, RESERVED, ProblemModule, Variant
from grader.grading.compare.expected import Expected
from grader.grading.oracle.case import Case, nbytes_of

ROWS, HALF, QUARTER = RESERVED
PARTS = {HALF: 2, QUARTER: 4}
"""Variants that stand for the full size where the device's memory is too short, with the divisor of their rows."""
WHOLE = (FULL, *PARTS)
"""Variants that are timed, largest first."""
FEW_BYTES = 4 << 20
"""Bytes of the inputs with fewer rows: as many rows are kept as fit. A check then takes about a millisecond on a
GPU."""
LEAST_ROWS = 2
"""Rows kept at least. A choice: statistics over a batch need two, and a row of megabytes has many values of each
channel."""


def with_fewer_rows(module: ProblemModule, inputs: Sequence[object]) -> Iterator[ProblemModule]:
    """Yields the module with a variant ROWS added, for each way to choose the inputs that are cut.

    `inputs` is a draw at full size. Yields nothing if the problem has several sizes, or if its inputs are small or have
    too few rows.
    """
    if set(module.variants) != {FULL}:
        return
    tensors = [value for value in inputs if isinstance(value, torch.Tensor) and value.dim() > 0]
    rows = tensors[0].shape[0] if tensors else 0
    alike = [value for value in tensors if value.shape[0] == rows]
    kept = _kept(rows, nbytes_of(alike))
    if kept is None:
        return
    full = module.variants[FULL]
    first = next(index for index, value in enumerate(inputs) if value is tensors[0])

    def cut_all(_: int, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == rows

    def cut_first(index: int, value: object) -> bool:
        return index == first

    for cuts in (cut_all, cut_first) if len(alike) > 1 else (cut_first,):
        sizes = {ROWS: kept, **{name: rows // divisor for name, divisor in PARTS.items()}}
        fewer = {name: Variant(full.make_init_inputs, _maker(full, size, cuts)) for name, size in sizes.items()}
        yield replace(module, variants=MappingProxyType({**fewer, FULL: full}))


def _kept(rows: int, nbytes: int) -> int | None:
    """The number of rows to keep, or None if fewer rows would save too little."""
    if nbytes <= 2 * FEW_BYTES or rows < 4:
        return None
    kept = max(LEAST_ROWS, FEW_BYTES * rows // nbytes)
    return kept if 2 * kept <= rows else None


def _maker(full: Variant, kept: int, cuts: Callable[[int, object], bool]) -> Callable[[], Sequence[Any]]:
    """A `make_inputs` that draws at full size and keeps the first rows of the inputs that `cuts` selects."""

    def make() -> Sequence[Any]:
        inputs = list(full.make_inputs())
        return [
            value[:kept].clone() if cuts(index, value) and isinstance(value, torch.Tensor) else value
            for index, value in enumerate(inputs)
        ]

    return make


def with_errors_like(case: Case, few: Case) -> Case:
    """A float32 run's case with at least twice the relative baseline errors of the case `few`.

    `few` is the case with fewer rows. Twice, because the rounding of the candidate and of the eager run both separate
    two float32 results. The case's own errors, those of a perturbed run, contain what non-smooth points add at this
    size.
    """

    def widened(expected: Expected | None, known: Expected | None) -> Expected | None:
        if expected is None or known is None or not known.norm:
            return expected
        count = math.sqrt(max(expected.reference64.numel(), 1) / max(known.reference64.numel(), 1))
        share = expected.norm / known.norm
        return replace(
            expected,
            error_l2=max(expected.error_l2, 2 * known.error_l2 * share),
            error_max=max(expected.error_max, 2 * known.error_max * share / count),
            spread=None,
        )

    def table(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: widened(expected, theirs.get(name)) for name, expected in ours.items()}

    return replace(
        case,
        outputs=table(case.outputs, few.outputs),
        buffers=table(case.buffers, few.buffers),
        gradients=table(case.gradients, few.gradients),
    )
