"""All that crosses the trust boundary: jobs go in, evidence comes out.

The referee (trusted) and the worker (its memory belongs to whatever submission it runs) import this module; it is the
only one of ours that both do. A message is one length-prefixed JSON document; tensors travel beside it as raw bytes in
two regions of shared memory that the referee made: the *inbox*, which the worker can only read, and the *outbox*.
Nothing is pickled, in either direction. Where a tensor lies, its shape and its dtype are said by the referee, in a
`Slot`; a worker that has something else to show reports so instead of writing it.

A `Job` is a short program of steps that the worker carries out in order; an `Evidence` says what each step found, up to
the first that raised. Evidence is a claim, never a verdict: it is schema-checked and bounded in size before anybody
reads it.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

CONTROL_FD = 3
"""The worker's end of the control socket."""

MAX_JOB_BYTES = 16 << 20
MAX_EVIDENCE_BYTES = 4 << 20
"""A longer evidence is a protocol violation; a verdict needs a few kilobytes."""

MAX_LISTED_ERRORS = 1000

HEADER = struct.Struct("<I")
"""Length of the JSON document that follows, in bytes."""

ALIGNMENT_BYTES = 512
"""Slots start at multiples of this, like the blocks of CUDA's allocators."""

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def _printable(text: str) -> str:
    """Control characters, which could rewrite the terminal that a verdict is shown on, as question marks."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


Text = Annotated[str, Field(max_length=64 << 10), AfterValidator(_printable)]
Name = Annotated[str, Field(max_length=512), AfterValidator(_printable)]
Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=1 << 48)], ...], Field(max_length=16)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]
Many = Field(max_length=4096, fail_fast=True)
"""Fail fast: a list of a million bad entries costs one error, not a million."""


class Message(BaseModel):
    """A frozen record that takes no unknown field and converts no type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Slot(Message):
    """A place in a region: contiguous elements in row-major order."""

    offset: int
    """From the region's start, in bytes."""
    dtype: str
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * ITEM_BYTES[self.dtype]


class TensorInfo(Message):
    """A tensor as a worker describes it; `shape` of something that is no tensor is None."""

    name: Name
    kind: Literal["tensor", "none", "other"] = "tensor"
    type_name: Name = ""
    """The Python type, where `kind` is `other`."""
    shape: Shape | None = None
    dtype: Name | None = None
    device: Name | None = None
    requires_grad: bool = False
    is_leaf: bool = False
    grad_fn: Name | None = None


# ------------------------------------------------------------------------------------------------ steps of a job


class Attach(Message):
    """Map a region; its file descriptor comes with the message. Replaces the region that was there."""

    do: Literal["attach"] = "attach"
    region: Literal["inbox", "outbox"]
    kind: Literal["host", "cuda"]
    nbytes: int


class Import(Message):
    """Import a source file as a module, compiling what it compiles, and keep one of its classes for `Construct`."""

    do: Literal["import"] = "import"
    source: str
    file_name: str
    class_name: str
    use_bundle: bool = False
    """Extensions built earlier come in a descriptor with the message; see `worker.build`."""
    give_bundle: bool = False
    """Write the extensions that were built here to the second descriptor."""


class Construct(Message):
    """Make an instance under a key. Values are encoded by `encode_value`."""

    do: Literal["construct"] = "construct"
    model: str
    init_inputs: Any
    device: Literal["cpu", "cuda"]
    float64: bool = False
    seed: int


class SetState(Message):
    """Copy inbox values into parameters and buffers in place, leaving their version counters alone."""

    do: Literal["set_state"] = "set_state"
    model: str
    values: dict[str, Slot]


class Argument(Message):
    """One positional argument of forward: a tensor in the inbox, or a plain value."""

    slot: Slot | None = None
    value: Any = None
    requires_grad: bool = False
    layout: Literal["contiguous", "strided"] = "contiguous"
    """`strided`: the same values with a gap after each element of the last dimension."""


class PutInputs(Message):
    """Make private copies of the arguments under a key.

    `reuse_addresses` writes into the tensors that the key already has. Otherwise the old ones stay alive until the new
    ones exist, so that the addresses differ.
    """

    do: Literal["put_inputs"] = "put_inputs"
    inputs: str
    arguments: tuple[Argument, ...]
    reuse_addresses: bool = False
    float64: bool = False


class Forward(Message):
    """Call the model. Its result stays under the tape's key, with or without a graph."""

    do: Literal["forward"] = "forward"
    model: str
    inputs: str
    tape: str
    training: bool = True
    grad: bool = False
    frozen: tuple[str, ...] = ()
    """Inputs (by `input[i]`) and parameters that do not require a gradient in this call."""
    tf32: bool = False
    side_stream: bool = False
    seed: int = 0
    """Of the global generator, for models that draw random numbers."""
    clone_inputs: bool = False
    """Hand the model a copy that is no leaf, for a reference that works in place on its input."""
    offload: bool = False
    """Keep what the graph saves for backward in host memory: slower, and fits where float64 at full size would not."""
    substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach"] = "none"
    """Replace a function of torch by a lookalike: the reference shows what a known mistake would give."""


class Cotangent(Message):
    """A grad_output in the inbox, and how it is laid out in memory when autograd gets it."""

    slot: Slot
    layout: Literal["contiguous", "expanded", "transposed", "sliced"] = "contiguous"
    expand_to: Shape | None = None
    """For `expanded`: the slot holds extents of 1 where the shape here is longer."""


class Backward(Message):
    """Vector-Jacobian product of a tape's outputs: one gradient for each input and parameter asked for.

    `into`: "result" uses `torch.autograd.grad`, which leaves `.grad` alone; "fresh" clears `.grad` and uses
    `torch.autograd.backward`; "add" lets that add to what `.grad` holds.
    """

    do: Literal["backward"] = "backward"
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
    double: bool = False
    """Differentiate the gradients once more and report whether that worked."""
    contiguous_grads: bool = False
    """Make every gradient contiguous before a function of the graph gets it."""


class Trace(Message):
    """Follow a tape's graph back from its outputs, and say where the gradients asked for get lost."""

    do: Literal["trace"] = "trace"
    tape: str
    cotangents: dict[str, Cotangent]
    wrt: tuple[str, ...]


class Export(Message):
    """Copy tensors into the outbox.

    A source is `output:<tape>:<name>`, `grad:<grads>:<name>`, `state:<model>:<name>` or `input:<inputs>:<i>`.
    """

    do: Literal["export"] = "export"
    items: dict[str, Slot]


class Flush(Message):
    """Write scratch memory twice and drop it, so that what follows starts with cold caches."""

    do: Literal["flush"] = "flush"
    nbytes: int


class Time(Message):
    """Time one part of a call by the worker's own clock; its results stay under their keys for `Export`.

    "inference" is a forward without a graph, "forward" one with a graph, "backward" differentiates what that one made.
    """

    do: Literal["time"] = "time"
    part: Literal["inference", "forward", "backward"]
    model: str
    inputs: str
    tape: str
    grads: str
    cotangents: dict[str, Cotangent] = {}
    wrt: tuple[str, ...] = ()
    training: bool = True
    tf32: bool = True
    flush_bytes: int = 0
    """As a `Flush` right before the call."""
    seed: int = 0
    clone_inputs: bool = False


class Drop(Message):
    """Forget inputs, tapes and gradients."""

    do: Literal["drop"] = "drop"
    empty_cache: bool = True
    """Give cached device memory back. Not between timed calls, which would then pay for taking it again."""
    models: bool = False


Step = Annotated[
    Attach | Import | Construct | SetState | PutInputs | Forward | Backward | Trace | Export | Flush | Time | Drop,
    Field(discriminator="do"),
]


class Job(Message):
    """Steps for one message; `id` comes back with the evidence."""

    id: int
    steps: tuple[Step, ...]


# ------------------------------------------------------------------------------------------------ evidence


class Done(Message):
    """The step was carried out and has nothing to tell."""

    did: Literal["done"] = "done"


class BuildEvent(Message):
    """One call of `load_inline` or `load`."""

    name: Name
    ok: bool
    seconds: Seconds
    cached: bool
    log: Text = ""


class Imported(Message):
    did: Literal["imported"] = "imported"
    seconds: Seconds
    builds: Annotated[tuple[BuildEvent, ...], Many] = ()
    bundle_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 0


class Constructed(Message):
    did: Literal["constructed"] = "constructed"
    parameters: Annotated[tuple[TensorInfo, ...], Many] = ()
    buffers: Annotated[tuple[TensorInfo, ...], Many] = ()
    builds: Annotated[tuple[BuildEvent, ...], Many] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Constructed:
        """Of two shapes under one name, the one that is matched need not be the one that is allocated for."""
        return _distinct(self, [info.name for info in (*self.parameters, *self.buffers)])


class Outputs(Message):
    """What forward returned, flattened: `output`, or `output[0]`, `output['key']`, ..."""

    did: Literal["outputs"] = "outputs"
    tensors: Annotated[tuple[TensorInfo, ...], Many] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Outputs:
        return _distinct(self, [info.name for info in self.tensors])


class Gradients(Message):
    did: Literal["gradients"] = "gradients"
    tensors: Annotated[tuple[TensorInfo, ...], Many] = ()
    double_backward: bool | None = None


class Reach(Message):
    """How far one operand's gradient comes."""

    operand: Name
    reached: bool
    """The outputs' graph leads back to it."""
    function: Name | None = None
    """The function nearest to it that was given a gradient and returned None on the way to it."""
    position: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Which argument of that function, from 0."""


class Traced(Message):
    did: Literal["traced"] = "traced"
    operands: Annotated[tuple[Reach, ...], Many] = ()
    inner_leaves: Annotated[tuple[Shape, ...], Many] = ()
    """Shapes of leaves in the graph that are neither inputs nor parameters."""


class Exported(Message):
    """`refused`: sources that do not exist or do not have the slot's shape and dtype."""

    did: Literal["exported"] = "exported"
    refused: Annotated[tuple[TensorInfo, ...], Many] = ()


class Timed(Message):
    """A claim."""

    did: Literal["timed"] = "timed"
    ms: Milliseconds


Result = Annotated[
    Done | Imported | Constructed | Outputs | Gradients | Traced | Exported | Timed, Field(discriminator="did")
]


class Failure(Message):
    """A step raised. Of kind `build`, the last of `builds` is the one that failed."""

    step: Annotated[int, Field(ge=0, le=4096)]
    kind: Literal["exception", "build", "out_of_memory", "missing_class", "import"]
    type_name: Name
    text: Text
    traceback: Text = ""
    builds: Annotated[tuple[BuildEvent, ...], Many] = ()

    @model_validator(mode="after")
    def _has_its_build(self) -> Failure:
        if self.kind == "build" and not self.builds:
            raise ValueError("a failed build without a build")
        return self


class Evidence(Message):
    """What a worker says about one job."""

    id: int
    results: Annotated[tuple[Result, ...], Many] = ()
    failure: Failure | None = None
    peak_device_bytes: Annotated[int, Field(ge=0, le=1 << 50)] = 0


_M = TypeVar("_M", bound=Message)


def _distinct(message: _M, names: list[str]) -> _M:
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    return message


_JOB = TypeAdapter(Job)
_EVIDENCE = TypeAdapter(Evidence)


class MalformedMessage(ValueError):
    """The bytes are no message of this protocol."""


def encode(message: Job | Evidence) -> bytes:
    """Header and JSON document."""
    body = message.model_dump_json().encode()
    return HEADER.pack(len(body)) + body


def decode_job(body: bytes) -> Job:
    """Raises MalformedMessage."""
    try:
        return _JOB.validate_json(body)
    except ValidationError as error:
        raise MalformedMessage(_first_line(error)) from None


def decode_evidence(body: bytes) -> Evidence:
    """Raises MalformedMessage for anything but a well-formed, bounded evidence."""
    try:
        return _EVIDENCE.validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise MalformedMessage(_first_line(error)) from None


ANSWERS: dict[type[Message], type[Message]] = {
    Import: Imported,
    Construct: Constructed,
    Forward: Outputs,
    Backward: Gradients,
    Trace: Traced,
    Export: Exported,
    Time: Timed,
}
"""What a step is answered with, where it is not `Done`."""


def check_answer(job: Job, evidence: Evidence) -> None:
    """Raises MalformedMessage for an evidence that cannot be the answer to this job, however well-formed it is.

    One result of the right kind for each step, up to the one that is said to have raised; nothing about tensors that
    nobody asked for. Whoever reads an evidence may rely on that.
    """
    if evidence.id != job.id:
        raise MalformedMessage(f"it answers job {evidence.id} when asked job {job.id}")
    failure, results = evidence.failure, evidence.results
    if failure is None and len(results) != len(job.steps):
        raise MalformedMessage(f"{len(results)} results for {len(job.steps)} steps")
    if failure is not None and not len(results) == failure.step < len(job.steps):
        raise MalformedMessage(f"step {failure.step} of {len(job.steps)} failed after {len(results)} results")
    for step, result in zip(job.steps, results, strict=False):
        if type(result) is not ANSWERS.get(type(step), Done):
            raise MalformedMessage(f"a {type(step).__name__} answered with {type(result).__name__}")
        asked: tuple[str, ...] | None = None
        told: list[str] = []
        if isinstance(step, Export) and isinstance(result, Exported):
            asked, told = tuple(step.items), [info.name for info in result.refused]
        elif isinstance(step, Backward) and isinstance(result, Gradients):
            asked, told = step.wrt, [info.name for info in result.tensors]
        elif isinstance(step, Trace) and isinstance(result, Traced):
            asked, told = step.wrt, [reach.operand for reach in result.operands]
        if asked is not None and (
            len(set(told)) != len(told) or not set(told) <= {_printable(name[:512]) for name in asked}
        ):
            raise MalformedMessage(f"{type(result).__name__} about what was not asked for")


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        if error.error_count() > MAX_LISTED_ERRORS:  # each would be made an object of
            return f"{error.error_count()} errors"
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:500]
    return str(error)[:500]


# ------------------------------------------------------------------------------------------------ plain values


def encode_value(value: object) -> Any:
    """A constructor argument as JSON: tuples and dictionaries tagged, tensors left to the caller's regions.

    Raises TypeError for anything but None, bool, int, float, str, lists, tuples and dictionaries with string keys.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, list):
        return [encode_value(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode_value(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode_value(item) for key, item in value.items()}}
    raise TypeError(f"a {type(value).__name__} cannot be sent to a worker as a constructor argument")


def decode_value(value: Any) -> Any:
    """The inverse of `encode_value`."""
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if isinstance(value, dict):
        ((tag, content),) = value.items()
        if tag == "float":
            return float.fromhex(content)
        if tag == "tuple":
            return tuple(decode_value(item) for item in content)
        return {key: decode_value(item) for key, item in content.items()}
    return value
