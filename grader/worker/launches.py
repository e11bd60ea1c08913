"""What a launch costs the GPU in this process: in one context this much, in another that, as long as they live.

On an H200, four kernels that do nothing take 6.5 to 6.7 us in some six of ten contexts and 6.9 to 7.1 us in the others,
each the same to 0.05 us for as long as it lives; a call of 13 us in two kernels takes 1.6% longer in the latter,
whatever streams and memory it uses. The cause is not known.
"""

from __future__ import annotations

import statistics

import torch

from grader.worker.clock import events

KERNELS = 4
REPEATS = 128
BUSY_CYCLES = 100_000
"""The stream is kept busy for these, some 50 us, while the host queues the kernels."""


def cost_ms() -> float:
    """Milliseconds for one of a few kernels that do nothing; mean over the lower quarter of many times, since what else
    runs on the GPU can only add to it."""
    return statistics.fmean(sorted(_chain_ms() for _ in range(REPEATS))[: REPEATS // 4]) / KERNELS


def _chain_ms() -> float:
    before, after = events()
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)  # type: ignore[no-untyped-call]
    before.record()
    for _ in range(KERNELS):
        torch.cuda._sleep(0)  # type: ignore[no-untyped-call]
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))
