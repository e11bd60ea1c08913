"""Keeps what a forward saves for its backward, as it was then.

A change of it behind autograd's back then has no effect. A write through `.data` moves no version counter.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

import torch

_TORCH = str(Path(torch.__file__).parent)


class _Kept(NamedTuple):
    tensor: torch.Tensor
    copy: torch.Tensor
    place: str

    @property
    def changed(self) -> bool:
        """Whether another value stands in the tensor now; NaN is equal to NaN."""
        equal = (self.tensor == self.copy) | ((self.tensor != self.tensor) & (self.copy != self.copy))
        return not bool(equal.all())


class KeptValues:
    """Gives the backward copies of what the forward saved, made when it did so."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept.copy)

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._hooks.__exit__(*raised)

    @property
    def name(self) -> str:
        """The first tensor that has changed since it was saved; empty if none has."""
        first = next((kept for kept in self._kept if kept.changed), None)
        return "" if first is None else f"of shape {list(first.tensor.shape)}{first.place}"

    def _pack(self, tensor: torch.Tensor) -> _Kept:
        kept = _Kept(tensor.detach(), tensor.detach().clone(), _place())
        self._kept.append(kept)
        return kept


def _place() -> str:
    """The line of the submission that calls the operation; empty for one that a library calls by itself."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    if frame is None or str(frame.f_globals.get("__name__")).startswith("grader."):
        return ""
    return f" that line {frame.f_lineno} saves"
