"""Steps that prepare a worker: shared memory, GPU context, submission, models and their state."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grader.protocol.base import (
    Many,
    Message,
    Milliseconds,
    Name,
    Result,
    Seconds,
    Shape,
    Slot,
    Step,
    TensorInfo,
    Text,
    distinct,
)

__all__ = [
    "SPARE_BYTES",
    "Attach",
    "BuildEvent",
    "CompileAhead",
    "CompiledAhead",
    "Construct",
    "Constructed",
    "Drop",
    "FakeInput",
    "Import",
    "Imported",
    "Keep",
    "Kept",
    "LoadState",
    "SetState",
    "Use",
    "Warm",
    "Warmed",
]


class Attach(Step):
    """Map a region, replacing the region of that name. Its file descriptor comes with the message."""

    do: Literal["attach"] = "attach"
    region: Literal["inbox", "outbox"]
    kind: Literal["host", "cuda"]
    nbytes: int


class Warmed(Result):
    """The speed at which the GPU takes up work of this process."""

    did: Literal["warmed"] = "warmed"
    launch_ms: Milliseconds
    """Time of one empty kernel among several that are queued together."""
    call_ms: Milliseconds
    """Time of two short kernels, also queued."""


class Warm(Step):
    """Create the GPU context and measure how quickly the GPU takes up work of this process.

    Takes tenths of a second and half a gigabyte of GPU memory.
    """

    do: Literal["warm"] = "warm"
    answer = Warmed
    libraries: bool = False
    """Load cuDNN and cuBLAS as well, which takes as long again. A first job that needs them does it otherwise."""
    counts: bool = False
    """A `Count` step will follow."""


class BuildEvent(Message):
    """One call of `load_inline` or `load`."""

    name: Name
    ok: bool
    seconds: Seconds
    cached: bool
    log: Text = ""


class Imported(Result):
    """The module was imported. `builds` lists the extensions that it compiled on import."""

    did: Literal["imported"] = "imported"
    seconds: Seconds
    builds: Annotated[tuple[BuildEvent, ...], Many] = ()
    bundle_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 0


class Import(Step):
    """Import a source file, with the extensions that it compiles, and keep a class for `Construct`."""

    do: Literal["import"] = "import"
    answer = Imported
    failure_kind = "import"
    source: str
    file_name: str
    class_name: str
    dtype: Literal["bfloat16", "float16"] | None = None
    """The dtype of its models' floating parameters and buffers; None leaves them."""
    tf32: bool = False
    """Every call may use TensorFloat-32, in cuBLAS and cuDNN."""
    use_bundle: bool = False
    """A descriptor with previously built extensions comes with the message."""
    give_bundle: bool = False
    """Write the extensions that are built here to the next descriptor."""
    no_gpu: bool = False
    """No GPU will follow: just-in-time compilers that are called on import compile, and launch nothing."""


class FakeInput(Message):
    """An argument of the forward: a tensor's shape and dtype, or an encoded plain value."""

    shape: Shape = ()
    dtype: Name | None = None
    """`float32`; None for a plain value."""
    value: Any = None


class CompiledAhead(Result):
    """The kernels that were compiled without a GPU."""

    did: Literal["compiled_ahead"] = "compiled_ahead"
    builds: Annotated[tuple[BuildEvent, ...], Many] = ()
    note: Text = ""
    """The error that ended the run on fake tensors early."""


class CompileAhead(Step):
    """Compile just-in-time kernels where there is no GPU, by a run on fake tensors."""

    do: Literal["compile_ahead"] = "compile_ahead"
    answer = CompiledAhead
    init_inputs: Any
    inputs: tuple[FakeInput, ...]


class Kept(Result):
    """The files that just-in-time compilers left."""

    did: Literal["kept"] = "kept"
    added: Annotated[int, Field(ge=0, le=1 << 40)]
    """Files that they added to their caches in this process."""
    bundle_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 0


class Keep(Step):
    """Write extensions and just-in-time kernels to the descriptor, if there are new kernels."""

    do: Literal["keep"] = "keep"
    answer = Kept
    end_compilers: bool = False
    """End the processes in which TorchInductor compiles, so that they disturb no time."""


class Constructed(Result):
    """Parameters and buffers of the new model."""

    did: Literal["constructed"] = "constructed"
    parameters: Annotated[tuple[TensorInfo, ...], Many] = ()
    buffers: Annotated[tuple[TensorInfo, ...], Many] = ()

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Constructed:
        """Reject a name with two shapes: one could be matched and the other one allocated."""
        return distinct(self, [info.name for info in (*self.parameters, *self.buffers)])


class Construct(Step):
    """Create an instance of the imported class under a key. Values are encoded by `encode_value`."""

    do: Literal["construct"] = "construct"
    answer = Constructed
    model: str
    init_inputs: Any
    device: str
    float64: bool = False
    float64_factories: bool = False
    """What its forward creates without a dtype is float64 as well, as `torch.zeros(n)`."""
    seed: int
    on_device: bool = False
    """Draw parameters on the device if the constructor permits it; else on the CPU, and move them."""
    detach_kept: bool = False
    """Detach what an earlier forward left in attributes before each forward, as a training loop does with a hidden
    state."""
    compile_mode: Literal["none", "default", "max-autotune-no-cudagraphs"] = "none"
    """Mode of torch.compile, which compiles at the first call. Used for baselines of the reference only."""


class Use(Step):
    """Make a key refer to the model that was constructed under another key."""

    do: Literal["use"] = "use"
    model: str
    constructed: str


class LoadState(Step):
    """Give inbox values to the model's load_state_dict, whose hooks may map them to parameters of its own."""

    do: Literal["load_state"] = "load_state"
    model: str
    values: dict[str, Slot]


class SetState(Step):
    """Copy inbox values into parameters and buffers in place; their version counters move."""

    do: Literal["set_state"] = "set_state"
    model: str
    values: dict[str, Slot]


SPARE_BYTES = 1 << 30
"""Cached device memory that a worker may keep between jobs: returning it takes longer than a small job. A choice."""


class Drop(Step):
    """Forget inputs, tapes and gradients."""

    do: Literal["drop"] = "drop"
    keep_bytes: int | None = SPARE_BYTES
    """Return cached memory to the system if it is more than this; None keeps all of it. On the CPU it is returned only
    together with `models`."""
    models: bool = False
    keep_results: bool = False
    """Keep outputs and gradients, without what they were computed from."""
