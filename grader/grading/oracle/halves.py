"""A float64 run in two halves of the batch, with no more memory than a float32 run of the whole.

Of a reference that treats the rows of its inputs alike and apart, the outputs and inputs' gradients of both halves are
those of the whole, and parameters' gradients are the sum. Whether it does, four rows show: run together and as two
halves, in float64, they agree to more digits than float32 has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.executor import TensorSpec
from grader.grading.compare.blocks import LARGE_BYTES
from grader.grading.oracle.case import nbytes_of
from grader.grading.oracle.evaluation import Evaluation, Pass, widened
from grader.grading.oracle.fewer_rows import LEAST_ROWS
from grader.grading.oracle.traits import Traits


class AskOf(Protocol):
    """Has a reference with these traits run passes, and yields their results in order."""

    def __call__(self, traits: Traits, passes: list[Pass], /) -> Iterator[Evaluation]: ...


class Halves(NamedTuple):
    """A pass whose halves may stand for it."""

    ask: AskOf
    traits: Traits
    whole: Pass
    rows: int

    def run(self) -> Evaluation:
        """The results of the whole. Raises ReferenceRefused."""
        return self._joined(self.rows)

    def agree(self) -> bool:
        """Whether a few rows have the same results together and as halves."""
        few = 2 * LEAST_ROWS  # neighbours, in both halves
        try:
            (together,) = self.ask(self._traits_of(few), [self._part(0, few)])
            apart = self._joined(few)
        except ReferenceRefused:
            return False
        return all(
            _equal(getattr(apart, table)[name], value)
            for table in ("outputs", "gradients")
            for name, value in getattr(together, table).items()
        )

    def _joined(self, rows: int) -> Evaluation:
        """The results of the first rows, computed in two halves."""
        traits = self._traits_of(rows // 2)
        first, second = (next(self.ask(traits, [self._part(start, start + rows // 2)])) for start in (0, rows // 2))
        wanted, of_half = self._traits_of(rows).output_specs(), self._part(0, rows // 2).operands()
        outputs = {name: _stacked(first.outputs[name], second.outputs[name], spec) for name, spec in wanted.items()}
        gradients: dict[str, torch.Tensor | None] = {}
        for name, spec in self._part(0, rows).operands().items():
            ours, theirs = first.gradients[name], second.gradients[name]
            if ours is None or theirs is None:
                gradients[name] = ours if theirs is None else theirs
            else:
                gradients[name] = ours + theirs if spec == of_half[name] else _stacked(ours, theirs, spec)
        return Evaluation(outputs, gradients, {})

    def _part(self, start: int, stop: int) -> Pass:
        inputs = [_cut(value, self.rows, start, stop) for value in self.whole.inputs]
        cotangents = {name: value[start:stop] for name, value in self.whole.cotangents.items()}
        return replace(self.whole, inputs=inputs, cotangents=cotangents)

    def _traits_of(self, rows: int) -> Traits:
        outputs = tuple(
            info.model_copy(update={"shape": (rows, *(info.shape or ())[1:])}) for info in self.traits.outputs
        )
        return self.traits._replace(outputs=outputs)

    def adds(self) -> list[TensorSpec]:
        """The gradients that are the sum of those of both halves."""
        of_half = self._part(0, self.rows // 2).operands()
        return [spec for name, spec in self.whole.operands().items() if spec == of_half[name]]


def halves(ask: AskOf, traits: Traits, whole: Pass) -> Halves | None:
    """The halves of a pass of over a GiB, if they stand for it; None otherwise."""
    first = next((value for value in whole.inputs if isinstance(value, torch.Tensor) and value.dim()), None)
    rows = 0 if first is None else first.shape[0]
    batched = all(info.kind == "tensor" and info.shape and info.shape[0] == rows for info in traits.outputs)
    if rows < 4 * LEAST_ROWS or rows % 2 or not batched or traits.buffers or traits.stochastic:
        return None
    found = Halves(ask, traits, whole, rows)
    if nbytes_of(whole.sent().values()) + whole.returned_bytes(traits) <= p.SPARE_BYTES:
        return None
    if any(2 * spec.nbytes >= LARGE_BYTES for spec in found.adds()):  # whose halves come back in float32
        return None
    return found if found.agree() else None


def _cut(value: object, rows: int, start: int, stop: int) -> object:
    if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == rows:
        return value[start:stop]
    return value


def _stacked(first: torch.Tensor, second: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Both halves, in the dtype that the whole would have been read in."""
    dtype = widened(spec, True).dtype
    return torch.cat([first.to(dtype), second.to(dtype)])


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    most = torch.finfo(torch.float32).eps ** 1.5
    return bool(torch.linalg.vector_norm(one - other) <= most * torch.linalg.vector_norm(other))
