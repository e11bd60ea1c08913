"""The properties of the reference in one mode, known before any of its results is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.executor import TensorSpec
from grader.grading.oracle.values import is_differentiable


class Traits(NamedTuple):
    """Properties of a variant of the reference in one mode, found by `first_look`."""

    outputs: tuple[p.TensorInfo, ...]
    parameters: tuple[p.TensorInfo, ...]
    buffers: tuple[p.TensorInfo, ...]
    """With the parameters that a forward writes to, which are compared after it as buffers are."""
    clone_inputs: bool
    stochastic: bool
    """Two runs on the same inputs and state differ under different seeds."""
    has_float64: bool
    flops: float
    """Operations of one forward's matrix products and convolutions; 0 if they cannot be counted."""
    convolves: bool
    """A forward has a convolution, to which PyTorch's default flags apply."""
    scanned: int
    """Elements of the longest running sum or product; 0 if they cannot be counted."""
    tables: frozenset[str]
    """Buffers and frozen parameters that do not depend on the seed and are not all 0 or all 1, as statistics start:
    positions, masks, filters. A kernel may compute them by formula, so the grader does not change them."""
    integers: Mapping[str, torch.Tensor] = {}
    """Integer, boolean and 8-bit buffers as another seed makes them, such as packed weights or a permutation; none that
    every seed makes alike, and no large ones."""
    training: bool = True
    """The mode."""
    asserts: bool = True
    """An operator may refuse values out of a range, which on a device ends the process."""
    apart: tuple[int, ...] = ()
    """Integers that are treated apart, as padding is."""
    bounds: frozenset[str] = frozenset()
    """Parameters and buffers that are bounds of a clamp, or edges of bins: they keep their signs, and the edges their
    order."""
    ascending: frozenset[str] = frozenset()
    """Those whose elements ascend in each row."""
    limits: Mapping[str, str] = {}
    """How far parameters move in training that may not change their sign (`trained_state.Freedom`)."""

    @property
    def learned(self) -> frozenset[str]:
        """The names of parameters, but frozen ones that every seed makes alike."""
        return frozenset(info.name for info in self.parameters) - self.tables

    def in_order(self, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """A state in which what ascends does so again, as noise may have put it out of order."""
        return {name: value.sort(-1).values if name in self.ascending else value for name, value in state.items()}

    def operands(self, inputs: Sequence[object], state: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
        """The inputs and parameters that a gradient is asked of; frozen ones too: ModelNew's get none either."""
        found = [f"input[{i}]" for i, value in enumerate(inputs) if is_differentiable(value)]
        learned = (info.name for info in self.parameters if info.requires_grad or is_differentiable(state[info.name]))
        return (*found, *learned)

    def output_specs(self) -> dict[str, TensorSpec]:
        """The specs of outputs that are tensors."""
        return {info.name: TensorSpec.of(info) for info in self.outputs if info.kind == "tensor"}

    def buffer_specs(self) -> dict[str, TensorSpec]:
        """The specs of buffers."""
        return {info.name: TensorSpec.of(info) for info in self.buffers}
