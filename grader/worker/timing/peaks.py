"""Measures the best rates of the device, from which the roofline bound follows."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grader.protocol import Gauge, Gauged
from grader.worker.registry import handles
from grader.worker.session import Session
from grader.worker.timing.clock import milliseconds

REPEATS = 8
"""The best of them counts, because other work can only make one slower."""
ENOUGH_SECONDS = 0.5
"""No further repetition after so long, the first aside, which may load kernels: products of a type that a CPU emulates
take seconds each, and vary little."""
MATRIX = {True: 1024, False: 8192}
"""Rows and columns of the matrices, on the CPU and elsewhere."""
COPY_BYTES = {True: 256 << 20, False: 2 << 30}
"""Several times the size of any cache, on the CPU and elsewhere."""


@handles(Gauge)
def gauge(session: Session, step: Gauge) -> Gauged:
    """Measure the peaks of the step's device."""
    return measured_peaks(torch.device(step.device), None if step.narrow is None else getattr(torch, step.narrow))


def measured_peaks(device: torch.device, narrow: torch.dtype | None = None) -> Gauged:
    """Time float32 matrix products with and without TensorFloat-32, and a copy and a sum of a vector.

    Products of the `narrow` type too, if there is one.
    """
    on_cpu = device.type == "cpu"
    size, length = MATRIX[on_cpu], COPY_BYTES[on_cpu] // 4
    a, b, out = (torch.ones(size, size, device=device) for _ in range(3))
    rates = {}
    try:
        for tf32 in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            rates[tf32] = 2 * size**3 / _best_seconds(device, lambda: torch.mm(a, b, out=out))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    narrow_rate = None
    if narrow is not None:
        a, b, out = (matrix.to(narrow) for matrix in (a, b, out))
        narrow_rate = 2 * size**3 / _best_seconds(device, lambda: torch.mm(a, b, out=out))
    # Written before they are read: untouched pages would all be the one page of zeros, in cache.
    source, target = (torch.ones(length, device=device) for _ in range(2))
    copied = 2 * 4 * length / _best_seconds(device, lambda: target.copy_(source))
    summed = 4 * length / _best_seconds(device, lambda: source.sum())
    return Gauged(float32=rates[False], tf32=rates[True], bytes=max(copied, summed), narrow=narrow_rate)


def _best_seconds(device: torch.device, action: Callable[[], object]) -> float:
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken[1:]) < ENOUGH_SECONDS:
        taken.append(milliseconds(device, action) / 1e3)
    return max(1e-9, min(taken))
