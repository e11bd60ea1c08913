"""The precisions that a submission may be graded in, and what each means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

TF32_BITS = 11
"""Significant bits of a TensorFloat-32 number: ten of mantissa, and one that is implied."""


class Precision(StrEnum):
    """The dtype of model and floating inputs, and whether products may round their operands."""

    FP32 = "fp32"
    """float32; judged with TensorFloat-32 off, timed as PyTorch ships."""
    TF32 = "tf32"
    """float32; judged and timed with TensorFloat-32 allowed in matrix products and convolutions."""
    BF16 = "bf16"
    """Model and floating inputs in bfloat16."""
    FP16 = "fp16"
    """Model and floating inputs in float16."""

    @property
    def meaning(self) -> Meaning:
        """Its meaning for the workers, the reference and the roofline bound."""
        return _MEANINGS[self]


@dataclass(frozen=True)
class Meaning:
    """The meaning of a precision."""

    dtype: Literal["bfloat16", "float16"] | None
    """The dtype of model and floating inputs; None leaves them as the problem makes them."""
    tf32: bool = False
    """TensorFloat-32 is allowed in every call, in cuBLAS and cuDNN. Only devices that have it are graded on."""


_MEANINGS = {
    Precision.FP32: Meaning(None),
    Precision.TF32: Meaning(None, tf32=True),
    Precision.BF16: Meaning("bfloat16"),
    Precision.FP16: Meaning("float16"),
}
