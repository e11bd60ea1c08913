"""Warms up a GPU worker, and measures how quickly the GPU takes up its work.

That is constant in one context and differs between contexts. Both empty kernels and a call with work are measured,
because contexts are of more than two kinds. Of 92 contexts on an H200, each of four empty kernels took up to 1.70 us in
48, 1.70 to 1.73 us in 24 and 1.73 to 1.76 us in 20; two kernels that move 16 MB each took 15.0, 15.3 and 15.1 us there,
on any core and any stream. The cause is unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from grader.protocol import Warm, Warmed
from grader.worker.autograd import engine
from grader.worker.checks.flops import flop_formulas
from grader.worker.memory import give_back_memory
from grader.worker.registry import handles
from grader.worker.session import Session
from grader.worker.timing.clock import on_device

KERNELS = 4
"""Empty kernels in one sample."""
ELEMENTS = 1 << 21
"""Floats that each kernel with work reads and writes: 16 MB moved."""
REPEATS = 128
"""Samples of each kind."""
BUSY_CYCLES = 100_000
"""GPU clock cycles (about 50 us) in which the host queues the kernels."""


@handles(Warm)
def warm_up(session: Session, step: Warm) -> Warmed:
    """Load what a first GPU job would wait for: context, driver bindings, libraries, formulas."""
    if step.libraries:
        engine.start("cuda")
    from cuda.bindings import driver  # noqa: F401

    if step.counts:
        flop_formulas()
    warmed = _measure()
    give_back_memory(torch.device("cuda"), 0, host=False)
    return warmed


def _measure() -> Warmed:
    """Takes about 20 ms of the GPU and its host."""
    one, other = (torch.zeros(ELEMENTS, device="cuda") for _ in range(2))

    def nothing() -> None:
        for _ in range(KERNELS):
            torch.cuda._sleep(0)  # type: ignore[no-untyped-call]

    def call() -> None:
        torch.neg(one, out=other)
        torch.neg(other, out=one)

    return Warmed(launch_ms=_typical_ms(nothing) / KERNELS, call_ms=_typical_ms(call))


def _typical_ms(action: Callable[[], None]) -> float:
    """Mean of the lowest quarter of the samples: other work on the GPU can only add to a sample."""
    return statistics.fmean(sorted(on_device(action, BUSY_CYCLES) for _ in range(REPEATS))[: REPEATS // 4])
