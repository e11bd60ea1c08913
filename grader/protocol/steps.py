"""Jobs: what the referee asks of a worker."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from grader.protocol._base import Message, Shape, Slot


class Attach(Message):
    """Map a region; its file descriptor comes with the message. Replaces the region that was there."""

    do: Literal["attach"] = "attach"
    region: Literal["inbox", "outbox"]
    kind: Literal["host", "cuda"]
    nbytes: int


class Warm(Message):
    """Make this process's context on the GPU, load what nearly all need there and see how quickly the GPU takes up its
    work: tenths of a second, and half a gigabyte of its memory."""

    do: Literal["warm"] = "warm"
    counts: bool = False
    """A `Count` will come."""


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
    on_device: bool = False
    """Parameters are drawn on the device where the constructor lets them be; else on the CPU, and then moved."""
    compile_mode: Literal["none", "default", "max-autotune-no-cudagraphs"] = "none"
    """torch.compile's; it compiles at the first call. The reference alone is asked, for a baseline."""


class Use(Message):
    """From now on, a key means the model that was constructed under another."""

    do: Literal["use"] = "use"
    model: str
    constructed: str


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
    seed: int | None = 0
    """Of the global generators, for models that draw random numbers; None leaves them where they are."""
    clone_inputs: bool = False
    """Hand the model a copy that is no leaf, for a reference that works in place on its input."""
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

    A source is `output:<tape>:<name>`, `grad:<grads>:<name>`, `cotangent:<grads>:<output>`, `state:<model>:<name>` or
    `input:<inputs>:<i>`.
    """

    do: Literal["export"] = "export"
    items: dict[str, Slot]
    queued: bool = False
    """Without waiting for the device; `Answer` says when they are there."""
    widen: bool = False
    """Floats of a narrower dtype than the slot's come in that one: of a float64 model whose forward rounds."""


class Flush(Message):
    """Write scratch memory twice and drop it, so that what follows starts with cold caches.

    What is allocated next comes to lie elsewhere, too.
    """

    do: Literal["flush"] = "flush"
    nbytes: int
    spacers: tuple[int, ...] = ()
    """Bytes of what is allocated before that, and kept until the next one or a `Drop` that empties the cache."""


class _TimedPart(Message):
    """One part of a call; its results stay under their keys for `Export`.

    "inference" is a forward without a graph, "forward" one with a graph, "backward" differentiates what that one made.
    """

    part: Literal["inference", "forward", "backward"]
    model: str
    inputs: str
    tape: str
    grads: str
    cotangents: dict[str, Cotangent] = Field(default_factory=dict)
    wrt: tuple[str, ...] = ()
    training: bool = True
    tf32: bool = True
    flush_bytes: int = 0
    """As a `Flush` right before the call."""
    seed: int = 0
    clone_inputs: bool = False


class Time(_TimedPart):
    """Time one part of a call by the worker's own clock."""

    do: Literal["time"] = "time"


class Await(Message):
    """The GPU does nothing of what follows before the referee has written `token` to `flag`, in the outbox."""

    do: Literal["await"] = "await"
    flag: Slot
    token: int
    idle_kernels: int
    """To be launched before that, so that what follows has another place among launches."""


class Queue(_TimedPart):
    """`Time`, without waiting: `Elapsed` tells the figure."""

    do: Literal["queue"] = "queue"
    alone: bool = False
    """The GPU is idle before and after the part, so that neither side's launches hide behind other work."""


class Answer(Message):
    """When the GPU has done everything up to here, it writes `token` to `flag`, in the outbox."""

    do: Literal["answer"] = "answer"
    flag: Slot
    token: int


class Elapsed(Message):
    """Wait for what was queued, and say how long the call took by the worker's own clock."""

    do: Literal["elapsed"] = "elapsed"


class Count(Message):
    """Run a forward and, with cotangents, a backward, and count the work that they do. The reference alone is asked."""

    do: Literal["count"] = "count"
    model: str
    inputs: str
    cotangents: dict[str, Cotangent] = Field(default_factory=dict)
    wrt: tuple[str, ...] = ()
    training: bool = True
    clone_inputs: bool = False


class Gauge(Message):
    """Measure what the device can do: matrix products and memory traffic. The reference's worker alone is asked."""

    do: Literal["gauge"] = "gauge"
    device: Literal["cpu", "cuda"]


class Guard(Message):
    """A forward, and a backward through it, with every tensor between redzones that are looked at afterwards.

    Inputs, parameters and buffers are guarded copies for as long as it takes. `nan` fills redzones and uninitialised
    memory with NaN, `zero` with zeros, which tells nothing of redzones.
    """

    do: Literal["guard"] = "guard"
    forward: Forward
    backward: Backward | None = None
    fill: Literal["nan", "zero"] = "nan"


class Profile(Message):
    """A forward, and a backward through it, under PyTorch's profiler. Answered whether or not that works."""

    do: Literal["profile"] = "profile"
    forward: Forward
    backward: Backward | None = None


class Drop(Message):
    """Forget inputs, tapes and gradients."""

    do: Literal["drop"] = "drop"
    empty_cache: bool = True
    """Give memory back that is kept for later use; the CPU's only with the models. Not between timed calls, which would
    pay for taking it again."""
    models: bool = False
    keep_results: bool = False
    """Outputs and gradients stay, without what they were computed from."""


Step = Annotated[
    Attach
    | Warm
    | Import
    | Construct
    | Use
    | SetState
    | PutInputs
    | Forward
    | Backward
    | Trace
    | Export
    | Flush
    | Time
    | Await
    | Queue
    | Answer
    | Elapsed
    | Count
    | Gauge
    | Guard
    | Profile
    | Drop,
    Field(discriminator="do"),
]


class Job(Message):
    """Steps for one message; `id` comes back with the evidence."""

    id: int
    steps: tuple[Step, ...]
