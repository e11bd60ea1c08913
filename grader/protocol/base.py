"""Building blocks of jobs and evidence: bounded field types, slots, tensor descriptions, registries.

Every subclass of `Step` with a `do` tag, and every subclass of `Result` with a `did` tag, joins its registry. A step
class names its result as `answer`, so the two are declared side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "ALIGNMENT_BYTES",
    "ITEM_BYTES",
    "MOST_ENTRIES",
    "NUMBERS",
    "SPARSE",
    "Done",
    "Message",
    "Name",
    "Result",
    "Shape",
    "Slot",
    "Step",
    "TensorInfo",
    "Text",
    "decode_value",
    "dtype_name",
    "encode_value",
    "gradient_source",
    "is_name",
    "output_source",
    "state_source",
]

ALIGNMENT_BYTES = 512
"""Slots start at multiples of this, as blocks of the CUDA caching allocator do."""

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes per element of each dtype that can cross the boundary."""

NUMBERS = {"bool": "bool", "int": "int64", "float": "float64"}
"""Type names of plain numbers that a model may return, with the dtypes of the tensors that they cross it as."""

NAME_CHARACTERS = 512
"""Longest `Name`."""


def printable(text: str) -> str:
    """Replace control characters by question marks: they could rewrite the terminal that shows a verdict."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def one_line(text: str) -> str:
    """Replace line breaks and tabs too: a break in a name could begin a forged line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def dtype_name(dtype: object) -> str:
    """The name of a torch.dtype in messages: `float32`."""
    return str(dtype).removeprefix("torch.")


def is_name(text: str) -> bool:
    """Whether a text can be a `Name` as it is."""
    return len(text) <= NAME_CHARACTERS and text.isprintable()


Text = Annotated[str, Field(max_length=64 << 10), AfterValidator(printable)]
Name = Annotated[str, Field(max_length=NAME_CHARACTERS), AfterValidator(one_line)]
Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=1 << 48)], ...], Field(max_length=16)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]
Total = Annotated[int, Field(ge=0, le=1 << 62)]
Rate = Annotated[float, Field(gt=0, le=1e18)]
MOST_ENTRIES = 4096
"""Entries of a list in a message."""
Many = Field(max_length=MOST_ENTRIES, fail_fast=True)
"""Bounds a list. Fails fast: a list of a million bad entries costs one error, not a million."""


class Message(BaseModel):
    """A frozen record that rejects unknown fields and converts no type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a region: contiguous elements in row-major order.

    No `Message`, which takes ten times as long to make: a job of a deep network has thousands.
    """

    offset: int
    """Bytes from the start of the region."""
    dtype: str
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * ITEM_BYTES[self.dtype]


SPARSE = "sparse tensor"
"""The type that describes a sparse tensor, of kind `other`."""


class TensorInfo(Message):
    """A worker's description of a value; `shape` is None if the value is no tensor, or a nested one."""

    name: Name
    kind: Literal["tensor", "none", "other"] = "tensor"
    type_name: Name = ""
    """Python type of the value; for kind `none` it is empty."""
    shape: Shape | None = None
    dtype: Name | None = None
    device: Name | None = None
    requires_grad: bool = False
    is_leaf: bool = False
    grad_fn: Name | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether it describes a sparse tensor, whose elements are not where those of a dense one are."""
        return self.type_name == SPARSE


class Result(Message):
    """A worker's report on one step. A claim: bounded and schema-checked, never believed as such."""

    kinds: ClassVar[list[type[Result]]] = []
    """All result classes, in order of declaration."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if "did" in cls.model_fields:
            cls.kinds.append(cls)

    def reported_names(self) -> Sequence[str]:
        """Names of the tensors that the result describes, where its step restricts them."""
        return ()


class Done(Result):
    """The step completed and has nothing to report."""

    did: Literal["done"] = "done"


class Step(Message):
    """One instruction to a worker."""

    kinds: ClassVar[list[type[Step]]] = []
    """All step classes, in order of declaration."""
    answer: ClassVar[type[Result]] = Done
    """The result class of a step that succeeds."""
    failure_kind: ClassVar[Literal["exception", "import"]] = "exception"
    """`Failure.kind` of a step that raises, unless the worker knows a more specific one."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if "do" in cls.model_fields:
            cls.kinds.append(cls)

    def requested_names(self) -> Collection[str] | None:
        """The only names that the result may report, each at most once; None if any are allowed."""
        return None


_M = TypeVar("_M", bound=Message)


def distinct(message: _M, names: list[str]) -> _M:
    """Return the message. Raises ValueError if a name occurs twice."""
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    return message


def encode_value(value: object) -> Any:
    """Encode an argument that is not a tensor as JSON; tuples, dictionaries and floats are tagged.

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
    raise TypeError(f"a {type(value).__name__} cannot be sent to a worker as an argument")


def decode_value(value: Any) -> Any:
    """Decode the result of `encode_value`."""
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


def output_source(tape: object, name: str) -> str:
    """The source, in an `Export`, of an output of the forward with this tape."""
    return f"output:{tape}:{name}"


def gradient_source(grads: object, operand: str | None) -> str:
    """The source, in an `Export`, of an operand's gradient by the backward with this key."""
    return f"grad:{grads}:{operand}"


def state_source(model: str, name: str | None) -> str:
    """The source, in an `Export`, of a parameter or buffer of a model."""
    return f"state:{model}:{name}"
