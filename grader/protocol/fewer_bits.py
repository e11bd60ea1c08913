"""Numbers with fewer significant bits, which referee and worker make alike."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import finfo  # that of the dtype: a float64 forward sees another one in `torch`

_INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
Way = Literal["cut", "to even", "away"]
"""The other bits are cut off, as tensor cores do; or the nearest number is taken, and of two the even one, as casts do,
or the larger one, as conversions to TensorFloat-32 do."""


def of_bits(value: torch.Tensor, bits: int, way: Way) -> torch.Tensor:
    """The tensor with so many significant bits in its own dtype, however large its numbers.

    It has bfloat16, float16, float32 or float64. Infinities and NaNs stay. Numbers below the smallest normal one keep
    fewer bits.
    """
    dropped = 1 - round(math.log2(finfo(value.dtype).eps)) - bits
    if dropped <= 0:
        return value
    whole = value.view(_INTEGERS[value.dtype])
    if way == "cut":
        return (whole & -(1 << dropped)).view(value.dtype)
    up = 1 << (dropped - 1) if way == "away" else (1 << (dropped - 1)) - 1 + ((whole >> dropped) & 1)
    return torch.where(value.isfinite(), ((whole + up) & -(1 << dropped)).view(value.dtype), value)
