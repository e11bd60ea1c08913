"""A line of the log for each job of a worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import groupby

from grader import protocol as p

LOG = logging.getLogger("grader.executor")


def log_job(role: str, steps: Sequence[p.Step], started: float, bytes_in: int, bytes_out: int) -> None:
    """Log a job that began at `started`, by `time.perf_counter`, and has just ended."""
    if LOG.isEnabledFor(logging.DEBUG):
        ms, kinds = round((time.perf_counter() - started) * 1e3, 3), compressed_kinds(steps)
        fields = {"role": role, "steps": kinds, "ms": ms, "bytes_in": bytes_in, "bytes_out": bytes_out}
        LOG.debug("%s: %s, %.1f ms, %d bytes in, %d bytes out", *fields.values(), extra=fields)


def compressed_kinds(steps: Sequence[p.Step]) -> str:
    """Return the kinds of the steps in order, such as `SetState PutInputs*2 Forward Export`."""
    runs = [(name, len(list(run))) for name, run in groupby(type(step).__name__ for step in steps)]
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in runs)
