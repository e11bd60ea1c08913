"""What one timed call is made on and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from grader.executor import WorkerClient
from grader.grading.timing.clocks import Time

Part = Literal["inference", "forward", "backward"]
Phase = Literal["inference", "training"]
PARTS: dict[Phase, tuple[Part, ...]] = {"inference": ("inference",), "training": ("forward", "backward")}
FIGURES: dict[Phase, dict[str, tuple[Part, ...]]] = {
    "inference": {"forward": ("inference",)},
    "training": {"backward": ("backward",), "total": ("forward", "backward")},
}
"""Which parts a figure of the verdict adds up."""


@dataclass
class Side:
    """One of the two arms."""

    worker: WorkerClient
    operands: Mapping[str, str]
    """Operand names of the reference to this side's."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of operands and buffers, as this side keeps them, by the reference's names."""
    names: Mapping[str, str]
    """Parameters and buffers of the reference to this side's."""


@dataclass(frozen=True)
class Draw:
    """What one call is made on; both arms get the same."""

    inputs: Sequence[object]
    state: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Call:
    """One timed call with its sealed tensors, which at full size are gigabytes: compare and let go."""

    times: Mapping[Part, Time]
    sealed: Mapping[str, torch.Tensor]
