"""How quickly the GPU takes up work of this process: in one context so, in another otherwise, as long as they live.

Kernels that do nothing and a call that does something are both looked at, since contexts are of more than two kinds.
Of 92 on an H200, each of four empty kernels took up to 1.70 us in 48, 1.70 to 1.73 us in 24 and 1.73 to 1.76 us in 20;
two kernels that move 16 MB each took 15.0, 15.3 and 15.1 us there, whatever core and streams were used. The cause is
not known.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from grader.protocol import Warmed
from grader.worker.timing.clock import on_device

KERNELS = 4
ELEMENTS = 1 << 21
REPEATS = 128
BUSY_CYCLES = 100_000
"""Some 50 us, in which the host queues the kernels."""


def measure() -> Warmed:
    """Takes a GPU and its host 20 ms."""
    one, other = (torch.zeros(ELEMENTS, device="cuda") for _ in range(2))

    def nothing() -> None:
        for _ in range(KERNELS):
            torch.cuda._sleep(0)  # type: ignore[no-untyped-call]

    def call() -> None:
        torch.neg(one, out=other)
        torch.neg(other, out=one)

    return Warmed(launch_ms=_least_ms(nothing) / KERNELS, call_ms=_least_ms(call))


def _least_ms(action: Callable[[], None]) -> float:
    """Mean over the lower quarter of many times: what else runs on the GPU can only add to it."""
    return statistics.fmean(sorted(on_device(action, BUSY_CYCLES) for _ in range(REPEATS))[: REPEATS // 4])
