"""The worker's process: reads jobs from a socket until the referee hangs up."""

from __future__ import annotations

import gc
import os
import traceback
from pathlib import Path

import numpy
import torch

from grader.protocol import CONTROL_FD, Evidence, Failure, Job, Result
from grader.worker.channel import Channel
from grader.worker.compile.importing import Builder, MissingClass
from grader.worker.compile.toolkit import complete_toolkit
from grader.worker.session import Bench

TEXT_CHARACTERS = 32 << 10


def main(descriptor: int, niceness: int, architecture: str) -> None:
    """`niceness` is added to its own, and to that of all that it starts; CUDA extensions are for `architecture`, `9.0`.

    The rest of the environment is the zygote's, which is there before anybody has asked what GPU this is.
    """
    os.nice(niceness)
    os.environ["TORCH_CUDA_ARCH_LIST"] = architecture
    if descriptor != CONTROL_FD:
        os.dup2(descriptor, CONTROL_FD)
        os.close(descriptor)
    numpy.random.seed()  # else all copies of one process would draw the same numbers; Python's own sees to it
    complete_toolkit()
    bench = Bench(Builder())
    bench.builder.install()
    channel = Channel(CONTROL_FD)
    gc.freeze()  # half a million objects that stay: each full collection would take a tenth of a second
    gc.enable()  # it was off while torch was imported
    if not Path("/dev/nvidiactl").exists():  # it is no worker for a GPU
        bench.have_pages()
    channel.send(Evidence(id=0))
    while (received := channel.receive()) is not None:
        channel.send(carry_out(bench, *received))


def carry_out(bench: Bench, job: Job, descriptors: list[int]) -> Evidence:
    """Run the steps until one raises; whatever a submission raises, even SystemExit, is evidence."""
    results: list[Result] = []
    failure = None
    if bench.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for index, step in enumerate(job.steps):
        built_before = len(bench.builder.events)
        try:
            results.append(bench.run(step, descriptors))
        except BaseException as error:
            failure = describe_failure(error, index, step.do, bench, built_before)
            break
    peak = torch.cuda.max_memory_reserved() if bench.device.type == "cuda" else 0
    return Evidence(id=job.id, results=tuple(results), failure=failure, peak_device_bytes=peak)


def describe_failure(error: BaseException, index: int, what: str, bench: Bench, built_before: int) -> Failure:
    builds = tuple(bench.builder.events[built_before:])
    kind = "exception"
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error):
        kind = "out_of_memory"
    elif isinstance(error, MissingClass):
        kind = "missing_class"
    elif builds and not builds[-1].ok:
        kind = "build"
    elif what == "import":
        kind = "import"
    return Failure(
        step=index,
        kind=kind,  # type: ignore[arg-type]
        type_name=type(error).__name__[:512],
        text=_cut(str(error)),
        traceback=_cut("".join(traceback.format_exception(error))),
        builds=builds,
    )


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    return (
        text
        if len(text) <= TEXT_CHARACTERS
        else text[: TEXT_CHARACTERS // 2] + "\n[...]\n" + text[-TEXT_CHARACTERS // 2 :]
    )
