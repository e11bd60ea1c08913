"""Evidence: what a worker says that it did. Claims, every one; bounded in size before anybody reads them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from grader.protocol._base import (
    Count,
    Many,
    Message,
    Milliseconds,
    Name,
    Rate,
    Seconds,
    Shape,
    TensorInfo,
    Text,
    distinct,
)

MAX_KERNELS = 64
"""Names that a profile lists."""


class Done(Message):
    """The step was carried out and has nothing to tell."""

    did: Literal["done"] = "done"


class Warmed(Message):
    did: Literal["warmed"] = "warmed"
    launch_ms: Milliseconds
    """One of a few queued kernels that do nothing: what a launch costs the GPU in this process."""
    call_ms: Milliseconds
    """Two short kernels, queued as well."""


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
        return distinct(self, [info.name for info in (*self.parameters, *self.buffers)])


class Outputs(Message):
    """What forward returned, flattened: `output`, or `output[0]`, `output['key']`, ..."""

    did: Literal["outputs"] = "outputs"
    tensors: Annotated[tuple[TensorInfo, ...], Many] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Outputs:
        return distinct(self, [info.name for info in self.tensors])


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


class Work(Message):
    """What one pass of the reference does. A multiplication and an addition are two operations."""

    operations: Count = 0
    """Calls of PyTorch's operations, views and allocations apart: about as many kernels, or more, are launched."""
    matmul: Count = 0
    """Floating-point operations in matrix products and attention."""
    convolution: Count = 0
    pointwise: Count = 0
    """Elements that pointwise operations wrote: one operation each, whatever the function."""
    scanned: Count = 0
    """Elements of the longest running sum or product of floats."""
    read_bytes: Count = 0
    """Of inputs and parameters (a forward) or grad_outputs (a backward): once, and only what is read."""
    written_bytes: Count = 0
    """Of what is returned, memory that is shared or repeated once."""


class Counted(Message):
    did: Literal["counted"] = "counted"
    forward: Work
    backward: Work | None = None
    draws: bool = False
    """The forward moved one of PyTorch's default generators."""


class Gauged(Message):
    """The best that was seen."""

    did: Literal["gauged"] = "gauged"
    float32: Rate
    """Floating-point operations per second in float32 matrix products, in full precision."""
    tf32: Rate
    """The same with TensorFloat-32 allowed; on a device without, about the same figure."""
    bytes: Rate
    """Bytes per second read and written by a copy, or read by a sum."""


class Breach(Message):
    """A redzone that was written to."""

    name: Name
    """`output`, `input[0]`, a parameter, `grad:<operand>`, `cotangent:<output>`, or what made it, for a temporary."""
    side: Literal["before", "after"]
    nbytes: Annotated[int, Field(ge=1, le=1 << 40)]
    """How far from the tensor the farthest byte that changed lies."""
    temporary: bool = False


class Guarded(Message):
    """A claim, by which a submission can only harm itself."""

    did: Literal["guarded"] = "guarded"
    breaches: Annotated[tuple[Breach, ...], Many] = ()


class Kernel(Message):
    """A kernel on a GPU; on the CPU an operator of PyTorch's, without those that it calls."""

    name: Name
    calls: Annotated[int, Field(ge=1, le=1 << 40)]
    ms: Milliseconds


class Profiled(Message):
    """A claim. The largest MAX_KERNELS by time."""

    did: Literal["profiled"] = "profiled"
    kernels: Annotated[tuple[Kernel, ...], Field(max_length=MAX_KERNELS, fail_fast=True)] = ()
    streams: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Of the device, that kernels ran on."""
    graphs: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Launches of CUDA graphs."""
    trouble: Text = ""
    """Why there is nothing, where the profiler failed."""


Result = Annotated[
    Done
    | Warmed
    | Imported
    | Constructed
    | Outputs
    | Gradients
    | Traced
    | Exported
    | Timed
    | Counted
    | Gauged
    | Guarded
    | Profiled,
    Field(discriminator="did"),
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
