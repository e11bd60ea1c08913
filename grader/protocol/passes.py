"""Steps of a forward and a backward pass: inputs, the call, its vector-Jacobian product, exports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grader.protocol.base import Many, Message, Name, Result, Shape, Slot, Step, TensorInfo, Total, distinct
from grader.protocol.changes import Change, PossibleSlip, Substitute

__all__ = [
    "Argument",
    "Backward",
    "Cotangent",
    "Export",
    "Exported",
    "Forward",
    "Gradients",
    "Outputs",
    "Overwrite",
    "PutInputs",
    "Reach",
    "Trace",
    "Traced",
]


class Argument(Message):
    """One positional argument of forward: a tensor in the inbox, or a plain value."""

    slot: Slot | None = None
    value: Any = None
    requires_grad: bool = False
    layout: Literal["contiguous", "strided"] = "contiguous"
    """`strided`: the same values with a gap after each element of the last dimension."""


class PutInputs(Step):
    """Make private copies of the arguments under a key.

    With `reuse_addresses` the values are written into the tensors that the key already has. Otherwise the old tensors
    stay alive until the new ones exist, so that the addresses differ.
    """

    do: Literal["put_inputs"] = "put_inputs"
    inputs: str
    arguments: tuple[Argument, ...]
    reuse_addresses: bool = False
    float64: bool = False


class Outputs(Result):
    """The tensors that forward returned, flattened: `output`, or `output[0]`, `output['key']`, ..."""

    did: Literal["outputs"] = "outputs"
    tensors: Annotated[tuple[TensorInfo, ...], Many] = ()
    changed: Name = ""
    """What the `Change` changed: an operator, the last of several, a slip or a saved tensor; empty if nothing."""
    numbers: Total = 0
    """Different numbers among the results that were rounded, if results were."""
    slips: Annotated[tuple[PossibleSlip, ...], Many] = ()
    """The slips that there can be of the kind that was asked for."""
    recording_off: bool = False
    """A forward with a graph left the recording of gradients turned off for what follows it."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Outputs:
        return distinct(self, [info.name for info in self.tensors])


class Forward(Step):
    """Call the model. Its result stays under the tape's key, with or without a graph."""

    do: Literal["forward"] = "forward"
    answer = Outputs
    model: str
    inputs: str
    tape: str
    training: bool = True
    grad: bool = False
    frozen: tuple[str, ...] = ()
    """Inputs (by `input[i]`) and parameters that do not require a gradient in this call."""
    tf32: bool = False
    side_stream: bool = False
    seed: int | None = 0
    """Seed of the global generators, for models that draw random numbers; None leaves them unchanged."""
    clone_inputs: bool = False
    """Pass the model a non-leaf copy, for a reference that modifies its input in place."""
    substitute: Substitute = "none"
    """Replace a torch function by one that it is often confused with, to see what that mistake would return."""
    change: Change | None = None


class Cotangent(Message):
    """A grad_output in the inbox, and its memory layout when autograd gets it."""

    slot: Slot
    layout: Literal["contiguous", "expanded", "transposed", "sliced"] = "contiguous"
    expand_to: Shape | None = None
    """For `expanded`: the slot has extent 1 where this shape is longer."""


class Gradients(Result):
    """One gradient for each requested operand."""

    did: Literal["gradients"] = "gradients"
    tensors: Annotated[tuple[TensorInfo, ...], Many] = ()
    double_backward: bool | None = None
    changed: Name = ""
    numbers: Total = 0
    slips: Annotated[tuple[PossibleSlip, ...], Many] = ()
    """As for a forward, like `changed` and `numbers`."""

    def reported_names(self) -> Sequence[str]:
        """Names of the operands."""
        return [info.name for info in self.tensors]


class Backward(Step):
    """Vector-Jacobian product of a tape's outputs: one gradient for each requested input and parameter.

    `into`: "result" uses `torch.autograd.grad`, which leaves `.grad` unchanged; "fresh" clears `.grad` and uses
    `torch.autograd.backward`; "add" lets that add to the present `.grad`.
    """

    do: Literal["backward"] = "backward"
    answer = Gradients
    tape: str
    grads: str
    """Key under which the gradients stay."""
    cotangents: dict[str, Cotangent]
    """By output name."""
    wrt: tuple[str, ...]
    """`input[i]` and parameter names."""
    into: Literal["result", "fresh", "add"] = "result"
    retain_graph: bool = False
    side_stream: bool = False
    tf32: bool = False
    double: Literal["no", "own", "all"] = "no"
    """Differentiate the gradients once more and report whether that worked. "own" takes the second derivatives of
    PyTorch's own operators on trust: that of a depthwise convolution takes a second."""
    contiguous_grads: bool = False
    """Make every gradient contiguous before a function of the graph receives it."""
    substitute: Literal["none", "tf32"] = "none"
    """As in the forward, for what the backward calls."""
    change: Change | None = None

    def requested_names(self) -> Collection[str]:
        """The operands."""
        return self.wrt


class Reach(Message):
    """The point that one operand's gradient reaches."""

    operand: Name
    reached: bool
    """The outputs' graph leads back to the operand."""
    function: Name | None = None
    """The function nearest to the operand that received a gradient and returned None on the way to it."""
    position: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Which argument of that function, from 0."""


class Traced(Result):
    """The places where gradients of the requested operands get lost."""

    did: Literal["traced"] = "traced"
    operands: Annotated[tuple[Reach, ...], Many] = ()
    inner_leaves: Annotated[tuple[Shape, ...], Many] = ()
    """Shapes of leaves in the graph that are neither inputs nor parameters."""

    def reported_names(self) -> Sequence[str]:
        """Names of the operands."""
        return [reach.operand for reach in self.operands]


class Overwrite(Step):
    """Fill a tape's outputs in place, as an operation after the forward may; those that carry a graph.

    Autograd knows of the change, and refuses a backward that saved them.
    """

    do: Literal["overwrite"] = "overwrite"
    tape: str


class Trace(Step):
    """Follow a tape's graph back from its outputs, and report where the requested gradients get lost."""

    do: Literal["trace"] = "trace"
    answer = Traced
    tape: str
    cotangents: dict[str, Cotangent]
    wrt: tuple[str, ...]

    def requested_names(self) -> Collection[str]:
        """The operands."""
        return self.wrt


class Exported(Result):
    """`refused`: sources that do not exist or do not have the slot's shape and dtype."""

    did: Literal["exported"] = "exported"
    refused: Annotated[tuple[TensorInfo, ...], Many] = ()
    orders: Annotated[dict[Name, Annotated[tuple[int, ...], Field(max_length=16)]], Many] = Field(default_factory=dict)
    """The dimensions of sources from the slowest to the fastest in memory, where that is not row-major."""

    def reported_names(self) -> Sequence[str]:
        """The refused sources and those in another order."""
        return [*(info.name for info in self.refused), *self.orders]


class Export(Step):
    """Copy tensors into the outbox.

    A source is `output:<tape>:<name>`, `grad:<grads>:<name>`, `cotangent:<grads>:<output>`, `state:<model>:<name>` or
    `input:<inputs>:<i>`.
    """

    do: Literal["export"] = "export"
    answer = Exported
    items: dict[str, Slot]
    queued: bool = False
    """Do not wait for the device; a `Signal` says when the tensors are there."""
    convert: bool = False
    """Convert floats to the slot's dtype, for a float64 model whose forward rounds or whose results are large; state is
    always converted, as `SetState` does."""
    keeps_order: bool = False
    """Copy dense tensors in the order of their memory, as timed calls do: another order is not the call's time."""

    def requested_names(self) -> Collection[str]:
        """The sources."""
        return self.items
