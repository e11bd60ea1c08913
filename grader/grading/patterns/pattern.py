"""A pattern of errors, and the tensors that it is searched in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from grader.grading.budget import Budget
from grader.grading.compare import narrow_types, tolerance
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.compare.expected import ELEMENT_TOLERANCE, EPSILON, Expected
from grader.grading.compare.scaling import REDUCED_PRECISION
from grader.grading.oracle.case import Case
from grader.grading.oracle.fewer_rows import FEW_BYTES
from grader.options import FULL_SECONDS

MAX_ELEMENTS = FEW_BYTES // torch.float32.itemsize
"""Elements of the largest tensor that is searched for patterns on the CPU: those of inputs with fewer rows. A search
makes a hundred passes."""
FIT = REDUCED_PRECISION
"""Relative residual of an explanation that holds: 100 times the rounding of float32 sums, and a hundredth of what a
wrong explanation of FREE elements leaves by chance."""
FREE = 4
"""Elements for each fitted number, and elements inside and outside of a region: with fewer, an explanation fits by
chance."""
CORRELATION = 0.5
"""Least correlation of an error with a rounding that made it, and of a gradient with a term that is a part of it.
A choice: of a hundred elements, tensors that have nothing to do with each other correlate by less than that in all but
one of a million pairs."""


@dataclass(frozen=True)
class Pattern:
    """A property that wrong elements have in common. Both texts are parts of a sentence."""

    text: str
    """Follows "gradient of `x`": "is zero in row 3", "is the sum of grad_output alone"."""
    remedy: str
    code: str = "grad_wrong"
    """The code of a diagnosis of a gradient with this pattern."""
    vague: bool = False
    """It says where, and not what stands there."""
    by_value: bool = False
    """It tells wrong elements by values of a tensor, as a branch does, and not by their indices."""
    calls: str = ""
    """In which of several calls of a function the mistake is made: follows the text."""

    def __str__(self) -> str:
        return self.text + self.calls


@dataclass(frozen=True)
class Known:
    """A tensor that a mistake may involve."""

    name: str
    """In a message: `x` in backticks, or grad_output."""
    value: torch.Tensor
    """In float64, where the wrong tensor is searched."""


class Region(NamedTuple):
    """Elements that may share a mistake."""

    text: str
    inside: torch.Tensor
    remedy: str
    """For what is wrong there in no particular way."""
    by_index: bool = True
    """Chosen by their indices, not by the values of another tensor."""


class Subject:
    """A wrong tensor beside the right one, and the known tensors around it; all in float64 on one device."""

    def __init__(self, case: Case, actual: torch.Tensor, expected: Expected, name: str) -> None:
        """`name` is the operand's in the case, or the output's."""
        self.case, self.name, self.expected = case, name, expected
        self._device = place_of_search(actual) or torch.device("cpu")
        self.actual = self.beside(actual)
        self.right = self.beside(expected.reference64)
        self.error = self.actual - self.right

    def beside(self, value: torch.Tensor) -> torch.Tensor:
        """A copy in float64 on the device of the search."""
        return value.detach().to(self._device).double()

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.right.shape)

    @cached_property
    def size(self) -> float:
        """The norm of the error."""
        return norm(self.error)

    @cached_property
    def noise(self) -> float:
        """The norm of what rounding adds to a result."""
        return tolerance.BASELINE_FACTOR_L2 * self.expected.error_l2 + self._rounding * norm(self.right)

    @cached_property
    def wrong(self) -> torch.Tensor:
        """A mask of the elements whose error exceeds rounding."""
        size = self.right.abs()
        rms = norm(self.right) / math.sqrt(max(self.right.numel(), 1))
        slope = ELEMENT_TOLERANCE + self._rounding
        factor = tolerance.BASELINE_FACTOR_MAX * narrow_types.share(self.expected.dtype)
        return self.error.abs() > factor * self.expected.error_max + slope * (size + rms)

    @cached_property
    def telling(self) -> torch.Tensor:
        """A mask of the elements that are not 0 on both sides, as most are behind a ReLU."""
        return (self.actual != 0) | (self.right != 0)

    @property
    def _rounding(self) -> float:
        return EPSILON * math.sqrt(self.expected.reduction_length)

    def shows(self, size: float) -> bool:
        """Whether an error of this norm is far above rounding, which would explain a smaller one."""
        return self._left(size) <= 0.1 * size

    def explained(self, residual: torch.Tensor, part: torch.Tensor | None = None) -> bool:
        """Whether a residual is what rounding leaves of the error, or of a `part` of it."""
        size = self.size if part is None else norm(part)
        return self.shows(size) and norm(residual) <= self._left(size)

    def _left(self, size: float) -> float:
        """The norm of what the right explanation leaves of an error."""
        return FIT * size + self.noise

    @cached_property
    def grad_outputs(self) -> list[Known]:
        """The grad_output of each output."""
        given = self.case.cotangents
        named = {name: "grad_output" if len(given) == 1 else f"the grad_output of {name}" for name in given}
        return [Known(named[name], value) for name, value in self._floats(given.items())]

    @cached_property
    def tensors(self) -> list[Known]:
        """Inputs, parameters, buffers and outputs: this operand first."""
        case = self.case
        inputs = {f"input[{i}]": value for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
        outputs = {name: expected.reference64 for name, expected in case.outputs.items()}
        found = [
            (name, Known(f"`{self.label(name)}`", value))
            for name, value in self._floats([*inputs.items(), *case.state.items(), *outputs.items()])
            if name in inputs or name in outputs or case.state[name].is_floating_point()
        ]
        return [known for _, known in sorted(found, key=lambda one: one[0] != self.name)]

    @cached_property
    def indices(self) -> list[Known]:
        """Integer inputs."""
        return [Known(known.name, known.value.to(self._device)) for known in integer_inputs(self.case)]

    def _floats(self, named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        most = _most_elements(self._device)
        for name, value in named:
            if (value.is_floating_point() or value.dtype is torch.bool) and 0 < value.numel() <= most:
                yield name, self.beside(value)

    def label(self, name: str) -> str:
        """A tensor's name in messages."""
        return self.case.operand_names.get(name, name)

    def like(self) -> Iterator[Known]:
        """Known tensors of this shape: this operand first, then the others, then grad_outputs."""
        for known in (*self.tensors, *self.grad_outputs):
            if tuple(known.value.shape) == self.shape:
                yield known


def place_of_search(tensor: torch.Tensor) -> torch.device | None:
    """The device on which a tensor is searched: the CPU if it has few elements, else the GPU with it.

    None if it has too many: a search keeps some ten tensors like it, in float64.
    """
    if tensor.numel() <= MAX_ELEMENTS:
        return torch.device("cpu")
    return tensor.device if tensor.numel() <= _most_elements(tensor.device) else None


def _most_elements(device: torch.device) -> int:
    """Elements of the largest tensor that is searched on the device."""
    return MAX_ELEMENTS if device.type == "cpu" else CHECK_BYTES // torch.float32.itemsize


def integer_inputs(case: Case) -> list[Known]:
    """The integer inputs of a case; on the CPU."""
    return [
        Known(f"`{case.operand_names[f'input[{i}]']}`", value.cpu())
        for i, value in enumerate(case.inputs)
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)
    ]


def nothing_found(tensor: torch.Tensor) -> str:
    """The beginning of a remedy for a wrong tensor in which no pattern is known."""
    return "it is too large to be searched for a pattern" if place_of_search(tensor) is None else NOTHING


def within_time(remedy: str, budget: Budget) -> str:
    """The remedy, which says in which time no pattern was found if a search may take longer."""
    if budget.seconds >= FULL_SECONDS:
        return remedy
    return remedy.replace(NOTHING, f"{NOTHING} in {budget.stage_seconds:.2g} s (with more seconds it goes on)")


NOTHING = "no pattern was found in the error"
Search = Callable[[Subject], Pattern | None]
"""One kind of pattern."""


def norm(value: torch.Tensor) -> float:
    """The Euclidean norm."""
    return float(torch.linalg.vector_norm(value))


def dimensions(dims: Sequence[int]) -> str:
    """`dimension 1`, `dimensions 0 and 2`."""
    shown = [str(dim) for dim in dims]
    return f"dimension {shown[0]}" if len(shown) == 1 else f"dimensions {', '.join(shown[:-1])} and {shown[-1]}"
