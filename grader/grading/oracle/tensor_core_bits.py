"""Numbers with the bits of TensorFloat-32, or fewer: what is exact, or rounded once, on tensor cores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from grader.grading.compare.together import elementwise
from grader.protocol.fewer_bits import Way, of_bits
from grader.verdict.precision import TF32_BITS


def cut(value: Any, bits: int) -> Any:
    """A float32 tensor cut to so many significant bits, as tensor cores do; other values as they are."""
    return cut_each([value], bits)[0]


def cut_each(values: Iterable[Any], bits: int) -> list[Any]:
    """The `cut` of each. Nothing leaves its range, changes its sign or becomes zero."""
    return _of_bits(values, bits, "cut")


def rounded(value: Any) -> Any:
    """A float32 tensor rounded to TensorFloat-32's 10 bits of mantissa; other values as they are."""
    return rounded_each([value])[0]


def rounded_each(values: Iterable[Any]) -> list[Any]:
    """The `rounded` of each."""
    return _of_bits(values, TF32_BITS, "away")


def _of_bits(values: Iterable[Any], bits: int, way: Way) -> list[Any]:
    """Values in which float32 tensors have so many of their bits."""
    found = list(values)
    chosen = [i for i, of in enumerate(found) if isinstance(of, torch.Tensor) and of.dtype == torch.float32]
    new = elementwise(lambda flat: of_bits(flat, bits, way), [found[i] for i in chosen])
    for index, value in zip(chosen, new, strict=True):
        found[index] = value
    return found
