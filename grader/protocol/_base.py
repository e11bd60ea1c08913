"""What jobs and evidence are made of."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

ALIGNMENT_BYTES = 512
"""Slots start at multiples of this, like the blocks of CUDA's allocators."""

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def printable(text: str) -> str:
    """Control characters, which could rewrite the terminal that a verdict is shown on, as question marks."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


Text = Annotated[str, Field(max_length=64 << 10), AfterValidator(printable)]
Name = Annotated[str, Field(max_length=512), AfterValidator(printable)]
Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=1 << 48)], ...], Field(max_length=16)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]
Milliseconds = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Rate = Annotated[float, Field(gt=0, le=1e18)]
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


_M = TypeVar("_M", bound=Message)


def distinct(message: _M, names: list[str]) -> _M:
    """The message. Raises ValueError where a name occurs twice."""
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    return message
