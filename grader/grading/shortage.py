"""Decides whose fault it is that the device's memory ran out.

A submission may say so to be asked for less, or fill the memory so that the reference runs out. Neither what it says
nor what its process reports is used: its share is what becomes free when its process ends.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch

from grader import protocol as p
from grader.errors import DeviceError, ReferenceOutOfMemory
from grader.executor import WorkerClient, WorkerLost
from grader.grading.messages import diagnose
from grader.grading.oracle.oracle import Oracle
from grader.grading.stopped import Stopped
from grader.machine.backends import backend


@dataclass(frozen=True)
class Shares:
    """Bytes of the device's own memory when it ran out."""

    had: int
    """What the submission held, and what was unused beside it."""
    held: int
    """What it held between calls, after it was asked to give back what no model needs."""
    needed: int
    """What it may take: twice as much as the reference at its peak, as with copies of what it reads and writes; what it
    shared with the grader; and as much as a worker may keep, half of which a CUDA context takes."""


def is_shortage(error: Exception) -> bool:
    """Whether the device's memory ran out in the grader or in the reference."""
    if isinstance(error, torch.OutOfMemoryError | ReferenceOutOfMemory):
        return True
    return isinstance(error, DeviceError | RuntimeError) and p.OUT_OF_MEMORY.search(str(error)) is not None


def is_own_shortage(error: Exception | None) -> bool:
    """Whether memory ran out in the submission, or it says so."""
    return isinstance(error, Stopped) and error.diagnosis.code == "out_of_memory"


def ran_short(error: Exception) -> bool:
    """Whether the device's memory ran out, in the grader, the reference or the submission."""
    return is_shortage(error) or is_own_shortage(error)


def end_and_measure_shares(worker: WorkerClient, oracle: Oracle, seconds: float) -> Shares | None:
    """End a submission's process, and see what it held. None on a device without memory of its own.

    There, each process has the same limit, which no other process takes from. The process has `seconds` to give back
    what no model needs.
    """
    device = backend(oracle.device)
    if not device.own_memory:
        return None
    shared = worker.region_bytes
    worker.read_results = None  # to read them takes more memory, and until then they are kept
    with suppress(WorkerLost, DeviceError), worker.within(seconds):
        worker.forget_results()
        worker.run([p.Drop(keep_bytes=0)], seconds)
        worker.release_memory()
    before = device.unused_bytes()
    worker.close()
    had = device.unused_bytes()
    peak = oracle.process.worker.peak_device_bytes
    return Shares(had=had, held=had - before, needed=2 * peak + shared + p.SPARE_BYTES)


def fills_memory(memory: Shares) -> Stopped | None:
    """The end of a submission that holds more than it may take, if the reference ran out."""
    if memory.held <= memory.needed:
        return None
    held, most = memory.held / 2**30, memory.needed / 2**30
    what = f"between calls it holds {held:.1f} GiB of the device's memory, so that the reference ran out of it"
    remedy = f"keep parameters and buffers only, at most {most:.1f} GiB: twice what the reference takes at its peak"
    return Stopped(diagnose("out_of_memory", what, remedy=remedy, stage="load"))
