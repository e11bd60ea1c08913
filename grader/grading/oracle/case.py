"""A case: one draw of one variant, with everything that the reference says about it. Stays with the referee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from grader.grading.compare.tolerance import Expected

Table = Literal["outputs", "gradients", "buffers"]


@dataclass(frozen=True, eq=False)
class Case:
    """Only `init_inputs`, `inputs`, `state` and `cotangents` are ever sent to a candidate."""

    variant: str
    training: bool
    seed: int
    """Of the generator that drew it, from the operating system's entropy."""
    init_inputs: Any
    """Encoded by `protocol.encode_value`."""
    inputs: tuple[object, ...]
    """float32 and integer tensors, and plain values."""
    state: Mapping[str, torch.Tensor]
    """Parameters and buffers by the reference's names."""
    cotangents: Mapping[str, torch.Tensor]
    """grad_output for each differentiable output, by output name; empty where nothing can be differentiated."""
    outputs: Mapping[str, Expected]
    buffers: Mapping[str, Expected]
    """Buffers after one forward; floating-point and integer alike."""
    gradients: Mapping[str, Expected | None]
    """By operand: `input[i]` or a parameter's name. None: the reference gives none, and so must the candidate."""
    operand_names: Mapping[str, str]
    """What a message calls an operand: the forward's argument name for an input."""
    clone_inputs: bool = False
    """The reference works in place on its input, so that leaves must be copied first."""
    others: frozenset[str] = frozenset()
    """Names of what the reference returns beside tensors: None, numbers. Their values are not looked at."""
    values_comparable: bool = True
    """False for a model that draws random numbers in this mode: of what is `drawn`, shapes and the existence of
    gradients remain."""
    drawn: frozenset[tuple[Table, str]] = frozenset()
    """What those numbers are in."""
    optional: frozenset[str] = frozenset()
    """Operands that the reference gives a gradient under some seeds and none under others."""
    forward_seed: int | None = None
    """Where the values are a submission's own: those under this seed (`random/seeded_values.py`)."""

    def comparable(self, table: Table, name: str) -> bool:
        """It has one value, which a submission must have too."""
        return self.values_comparable or (table, name) not in self.drawn

    @property
    def wrt(self) -> tuple[str, ...]:
        """Operands that a gradient is asked for."""
        return tuple(self.gradients)

    def operand(self, name: str) -> torch.Tensor:
        """The input or parameter of that name, as the reference has it."""
        if name.startswith("input["):
            value = self.inputs[int(name[len("input[") : -1])]
            assert isinstance(value, torch.Tensor)
            return value
        return self.state[name]

    @property
    def name(self) -> str:
        return self.variant if self.training else f"{self.variant} (eval)"

    def in_eval(self) -> Case:
        """The same for eval(), of a reference to which that makes no difference."""
        return replace(self, training=False)

    def without_gradients(self) -> Case:
        """The same with nothing to differentiate."""
        return replace(self, cotangents={}, gradients={})

    @property
    def nbytes(self) -> int:
        """Of inputs, grad_outputs, and what the reference has for outputs and gradients."""
        values = [value for value in (*self.inputs, *self.cotangents.values()) if isinstance(value, torch.Tensor)]
        expected = [of.reference64 for of in (*self.outputs.values(), *self.gradients.values()) if of is not None]
        return sum(value.nbytes for value in (*values, *expected))

    @property
    def released(self) -> bool:
        """Whether its values were released."""
        return any(isinstance(value, torch.Tensor) and value.is_meta for value in self.inputs)

    def release_values(self) -> None:
        """Keep shapes, norms and errors only, in place: timed calls draw their own values and need no more."""

        def shape_of(value: object) -> object:
            return value.to("meta") if isinstance(value, torch.Tensor) else value

        def table(expected: Mapping[str, Expected | None]) -> dict[str, Expected | None]:
            return {name: of and of.without_values() for name, of in expected.items()}

        slim = {
            "inputs": tuple(map(shape_of, self.inputs)),
            "cotangents": {name: value.to("meta") for name, value in self.cotangents.items()},
            "outputs": table(self.outputs),
            "gradients": table(self.gradients),
        }
        for name, value in slim.items():
            object.__setattr__(self, name, value)
