"""A case: one draw of one variant, and the reference's results for it.

Cases stay in the referee's process.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch

from grader import protocol as p
from grader.executor import JobBuilder, TensorSpec
from grader.grading import chance
from grader.grading.compare.expected import Expected
from grader.grading.messages import in_backticks

Table = Literal["outputs", "gradients", "buffers"]


def is_input(operand: str) -> bool:
    """Whether an operand's name is `input[i]`; the others are parameters."""
    return operand.startswith("input[")


def input_index(operand: str) -> int:
    """The i of `input[i]`."""
    return int(operand[len("input[") : -1])


class CaseKey(NamedTuple):
    """The variant, mode and number of the draw of a case."""

    variant: str
    training: bool
    draw: int


@dataclass
class Answers:
    """The reference's answers to questions about one case, which `remembered` fills in."""

    kept: dict[Hashable, Any] = field(default_factory=dict)
    derived: dict[Hashable, Any] = field(default_factory=dict)
    """Values that are made of the case's: at full size they take gigabytes."""


@dataclass(frozen=True, eq=False)
class Case:
    """One draw of a variant and the expected results.

    Only `init_inputs`, `inputs`, `state` and `cotangents` are ever sent to a candidate.
    """

    variant: str
    training: bool
    seed: int
    """Seed of the generator that drew the inputs; the seed itself is from the operating system's entropy."""
    init_inputs: Any
    """Encoded by `protocol.encode_value`."""
    inputs: tuple[object, ...]
    """float32 and integer tensors, and plain values."""
    state: Mapping[str, torch.Tensor]
    """Parameters and buffers by the reference's names."""
    cotangents: Mapping[str, torch.Tensor]
    """grad_output of each differentiable output by name; empty if nothing can be differentiated."""
    outputs: Mapping[str, Expected]
    buffers: Mapping[str, Expected]
    """Buffers after one forward, of floating-point and integer dtypes."""
    gradients: Mapping[str, Expected | None]
    """By operand: `input[i]` or a parameter's name. None means that the reference and the candidate have no
    gradient."""
    operand_names: Mapping[str, str]
    """The names of inputs and operands in messages; an input has the name of the forward's argument."""
    clone_inputs: bool = False
    """The reference modifies its inputs in place, so leaf tensors must be copied first."""
    detaches_kept: bool = False
    """What a forward keeps for the next one is detached in between; else the reference has no second backward."""
    others: frozenset[str] = frozenset()
    """Names of returned values that are not tensors or numbers, such as None. Their values are not compared."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """Types of returned values that are plain numbers, by name."""
    values_comparable: bool = True
    """False if the model draws random numbers in this mode. Then only shapes and the existence of gradients are checked
    for the tensors in `drawn`."""
    drawn: frozenset[tuple[Table, str]] = frozenset()
    """Tables and names of the tensors that depend on random numbers."""
    optional: frozenset[str] = frozenset()
    """Operands that have a gradient under some seeds and none under others."""
    sparse: frozenset[str] = frozenset()
    """Operands whose gradients the reference returns as sparse tensors; a submission may return dense ones."""
    forward_seed: int | None = None
    """Seed under which the expected values were computed, if they are the submission's own
    (`random/seeded.py`)."""

    gradients_are_noise: bool = False
    """Rounding decides the gradients, so that their values are not compared (`comparability.py`)."""
    also_in_eval: bool = False
    """The forward's probes run in eval() too, in the same jobs: the reference does the same in both modes."""
    answers: Answers = field(default_factory=Answers, init=False, repr=False)
    """Those about these values: a case that `replace` makes has none yet."""

    def call_seed(self) -> int:
        """The seed for one call of a candidate: a new one where values are compared, as none may depend on it."""
        if self.forward_seed is not None:
            return self.forward_seed
        return chance.new_seed() if self.values_comparable else 0

    @property
    def returns_tensor(self) -> bool:
        """Whether some output is a tensor, and no plain number."""
        return bool(self.outputs.keys() - self.numbers.keys())

    @property
    def modes(self) -> tuple[bool, ...]:
        """`training` of each turn of a probe."""
        return (self.training, False) if self.also_in_eval else (self.training,)

    def comparable(self, table: Table, name: str) -> bool:
        """Whether neither random numbers nor rounding decide the tensor, so that its values can be compared."""
        if self.gradients_are_noise and table == "gradients":
            return False
        return self.values_comparable or (table, name) not in self.drawn

    @property
    def wrt(self) -> tuple[str, ...]:
        """Operands whose gradients are checked."""
        return tuple(self.gradients)

    def operand(self, name: str) -> torch.Tensor:
        """The reference's input or parameter of that name."""
        if not is_input(name):
            return self.state[name]
        value = self.inputs[input_index(name)]
        assert isinstance(value, torch.Tensor)
        return value

    def shown(self, operands: Iterable[str]) -> str:
        """The names of operands in a message."""
        return in_backticks([self.operand_names.get(name, name) for name in operands])

    def with_operand(self, name: str, value: torch.Tensor) -> Case:
        """The same case with another value of one input or parameter; its expected values stay."""
        if is_input(name):
            inputs = (*self.inputs[: input_index(name)], value, *self.inputs[input_index(name) + 1 :])
            return replace(self, inputs=inputs)
        return replace(self, state={**self.state, name: value})

    @property
    def output_specs(self) -> dict[str, TensorSpec]:
        """The expected shape and dtype of each output, by name."""
        return {name: TensorSpec(output.shape, output.dtype) for name, output in self.outputs.items()}

    def timed(self, part: str, **how: Any) -> dict[str, Any]:
        """The fields of a step that times this part; inputs, tape and gradients are under the key "t"."""
        keys = {"inputs": "t", "tape": "t", "grads": "t"}
        return {"part": part, **keys, "training": self.training, "clone_inputs": self.clone_inputs, **how}

    @property
    def name(self) -> str:
        """The variant and, unless train(), the mode."""
        return self.variant if self.training else f"{self.variant} (eval)"

    @property
    def where(self) -> str:
        """The case in messages: `variant small (eval)`."""
        return f"variant {self.name}"

    @property
    def updated_buffers(self) -> frozenset[str]:
        """Buffers that the reference's forward changes."""
        return frozenset(
            name
            for name, after in self.buffers.items()
            if not torch.equal(after.reference64.to(self.state[name]), self.state[name])
        )

    def in_other_mode(self, cases: Iterable[Case]) -> Case | None:
        """The one of these cases that has the same variant in the other mode, if both can be compared."""
        others = (other for other in cases if other.variant == self.variant and other.training != self.training)
        other = next(others, None)
        return other if other and self.values_comparable and other.values_comparable else None

    def alike(self, **changes: Any) -> Case:
        """The same values asked in another way: the answers about them stay."""
        other = replace(self, **changes)
        object.__setattr__(other, "answers", self.answers)
        return other

    def as_eval(self) -> Case:
        """The same case in eval(), for a reference whose train() and eval() do the same."""
        return self.alike(training=False)

    def without_gradients(self) -> Case:
        """The same case with nothing to differentiate."""
        return self.alike(cotangents={}, gradients={})

    @property
    def nbytes(self) -> int:
        """The bytes of inputs, grad_outputs, and expected outputs and gradients."""
        expected = [
            value.reference64 for value in (*self.outputs.values(), *self.gradients.values()) if value is not None
        ]
        return nbytes_of((*self.inputs, *self.cotangents.values(), *expected))

    @property
    def state_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        return nbytes_of(self.state.values())

    @property
    def released(self) -> bool:
        """Whether its values were released."""
        return any(isinstance(value, torch.Tensor) and value.is_meta for value in self.inputs)

    def release_values(self) -> None:
        """Free all values in place and keep shapes, norms and errors, which is what timed calls need."""

        def shape_of(value: object) -> object:
            return value.to("meta") if isinstance(value, torch.Tensor) else value

        def table(expected: Mapping[str, Expected | None]) -> dict[str, Expected | None]:
            return {name: value and value.without_values() for name, value in expected.items()}

        slim = {
            "inputs": tuple(map(shape_of, self.inputs)),
            "cotangents": {name: value.to("meta") for name, value in self.cotangents.items()},
            "outputs": table(self.outputs),
            "gradients": table(self.gradients),
        }
        for name, value in slim.items():
            object.__setattr__(self, name, value)


def nbytes_of(values: Iterable[object]) -> int:
    """Bytes of the tensors among these values."""
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def smallest(values: Mapping[str, torch.Tensor], nbytes: int) -> dict[str, torch.Tensor]:
    """The smallest of these tensors that together take no more bytes than that, in their order."""
    ascending = sorted(values, key=lambda name: values[name].nbytes)
    ends = itertools.accumulate(values[name].nbytes for name in ascending)
    fitting = {name for name, end in zip(ascending, ends, strict=True) if end <= nbytes}
    return {name: value for name, value in values.items() if name in fitting}


def export_outputs(job: JobBuilder, case: Case, tape: str) -> None:
    """Bring back the outputs of a forward, as `output:<tape>:<name>`."""
    job.export({p.output_source(tape, name): spec for name, spec in case.output_specs.items()})


def first_comparable(cases: Sequence[Case]) -> Case | None:
    """The first case whose values can be compared."""
    return next((case for case in cases if case.values_comparable), None)
