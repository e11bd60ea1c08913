"""Timed calls of one side: what a call runs on, how it is sent to a worker, and what it returns.

On a CPU each part of a call is a job. On a GPU each part is put on the referee's own timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec, TimelineJob, WorkerClient
from grader.executor.gpu_timeline import Start
from grader.executor.quiet_memory import quiet_memory
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parameter_matching import Matching
from grader.grading.oracle.case import Case, export_outputs
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.reference_process import REFERENCE_SECONDS
from grader.grading.timing.clocks import Time
from grader.grading.timing.draws import Draw, Source
from grader.machine.backends import backend
from grader.verdict.models import Device

Part = Literal["inference", "forward", "backward"]
"""What one job times. `inference` is a forward without a graph."""
Phase = Literal["inference", "training"]
PARTS: dict[Phase, tuple[Part, ...]] = {"inference": ("inference",), "training": ("forward", "backward")}
FIGURES: dict[Phase, dict[str, tuple[Part, ...]]] = {
    "inference": {"forward": ("inference",)},
    "training": {"backward": ("backward",), "total": ("forward", "backward")},
}
"""The parts that each figure of the verdict adds up."""

_CLEAR = p.Drop(keep_bytes=None)
"""Frees what the last call left. Sent in one job with the next step, since a job costs as much as a short call."""


Which = Literal["reference", "candidate"]
"""The side of a comparison."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the reference or the candidate."""

    worker: WorkerClient
    operands: Mapping[str, str]
    """This side's operand names by the reference's."""
    matching: Matching
    """Where this side keeps the reference's parameters and buffers."""


@dataclass(frozen=True)
class Call:
    """One timed call with its sealed tensors. These are gigabytes at full size: compare them and let go."""

    times: Mapping[Part, Time]
    sealed: Mapping[str, torch.Tensor]


def phases_of(case: Case, *, training: bool = True) -> tuple[Phase, ...]:
    """Phases to time: without `training`, or with nothing to differentiate, inference alone."""
    return ("inference", "training") if training and case.wrt else ("inference",)


class NotQueued(Exception):
    """A call waited for the GPU before all of it was queued. It was let in late, so its time is void."""

    def __init__(self, *, reference: bool) -> None:
        """`reference`: whether it was one of the reference's."""
        super().__init__()
        self.reference = reference


class Caller:
    """Makes the timed calls of both sides. What a call leaves in a worker is freed before the next call."""

    def __init__(
        self, sides: Mapping[Which, Side], candidate: Candidate, oracle: Oracle, case: Case, *, tf32: bool
    ) -> None:
        self._sides, self._candidate, self._oracle, self._case, self._tf32 = sides, candidate, oracle, case, tf32
        self._device = oracle.device
        self._backend = backend(oracle.device)
        self._flush_bytes = self._backend.flush_bytes()
        self._threads = ThreadPoolExecutor(len(sides))
        self._renewals: list[Future[None]] = []
        if self._backend.timeline:  # else, each sample begins by freeing
            for which in sides:
                self._do(which, _CLEAR)

    def renew_pages(self, *sides: Which) -> None:
        """Begin to have these sides map new pages of a GPU's memory; on a host, each sample does so by itself."""
        if self._backend.timeline:
            # `Queue` flushes the caches before each call.
            steps = {which: p.Flush(nbytes=0, spacers=spacers(self._device)) for which in sides}
            self._renewals += [self._threads.submit(self._do, which, step) for which, step in steps.items()]

    def await_pages(self) -> None:
        """Wait until all pages that were asked for are there. Raises Stopped."""
        renewals, self._renewals = self._renewals, []
        for renewal in renewals:
            renewal.result()

    def close(self) -> None:
        """Wait for what was begun. What comes of it is of no interest any more."""
        self._threads.shutdown()

    def calls(
        self, which: Which, sources: Mapping[Phase, Sequence[Source]], start: Start, *, quiet: bool
    ) -> dict[Phase, list[Call]]:
        """One call of this side for each source of each phase, with `quiet` once the memory is.

        Raises NotQueued if a call should have been queued and could not be, and Stopped if the candidate fails.
        """
        if quiet and self._backend.timeline:
            quiet_memory().wait()
        return {phase: self._calls(which, phase, of_phase, start) for phase, of_phase in sources.items()}

    def _calls(self, which: Which, phase: Phase, sources: Sequence[Source], start: Start) -> list[Call]:
        if self._backend.timeline:
            return [self._on_gpu(which, phase, source, start) for source in sources]
        self._do(which, _CLEAR, p.Flush(nbytes=self._flush_bytes, spacers=spacers(self._device)))
        return [self._on_host(which, phase, source, clear=number > 0) for number, source in enumerate(sources)]

    def _on_host(self, which: Which, phase: Phase, source: Source, *, clear: bool) -> Call:
        """Make a call. `clear` frees the last call's results in the referee's interval, on both sides."""
        results, draw = [], source.values()
        for part in PARTS[phase]:
            job = JobBuilder(self._sides[which].worker, self._device, at_once=True)
            if clear and part == PARTS[phase][0]:
                job.step(_CLEAR)
            self._fill(job, which, phase, part, draw)
            results.append(self._run(which, job, self._doing(phase)))
        return _call(phase, results)

    def _on_gpu(self, which: Which, phase: Phase, source: Source, start: Start) -> Call:
        """Each part is a job of its own: what is queued at once has to fit into the GPU's queue."""
        results, draw = [], source.values()
        for part in PARTS[phase]:
            last = part == PARTS[phase][-1]
            job = TimelineJob(self._sides[which].worker, start=start, drop=_CLEAR if last else None)
            self._fill(job, which, phase, part, draw, alone=start == "at once")
            result = self._run(which, job, self._doing(phase))
            if not result.queued:
                self._do(which, _CLEAR)
                raise NotQueued(reference=which == "reference")
            results.append(result)
            draw = replace(draw, inputs=(), state={})  # the worker has them
        return _call(phase, results)

    def _fill(
        self, job: JobBuilder, which: Which, phase: Phase, part: Part, draw: Draw, *, alone: bool = False
    ) -> None:
        """Add the values of one part, the timed step, and the exports of its results."""
        side, case = self._sides[which], self._case
        if part != "backward":
            job.set_state(MODEL, side.matching.values(draw.state))
            job.put_inputs("t", draw.inputs, requires_grad=phase == "training")
        timed = case.timed(part, model=MODEL, tf32=self._tf32, seed=case.call_seed())
        if part == "backward":
            wrt = tuple(dict.fromkeys(side.operands.values()))
            timed |= {"cotangents": job.cotangents(draw.cotangents), "wrt": wrt}
        if self._backend.timeline:
            job.step(p.Queue(**timed, flush_bytes=self._flush_bytes, alone=alone))
        else:
            job.step(p.Time(**timed))
        if part == "backward":
            gradients = {
                p.gradient_source("t", theirs): TensorSpec(self._shape(side, name), case.operand(name).dtype)
                for name, theirs in side.operands.items()
            }
            job.export(gradients)
        else:
            export_outputs(job, case, "t")
            job.export({p.state_source(MODEL, theirs): spec for theirs, spec in self._buffers(side).items()})

    def give_back(self, which: Which) -> None:
        """Free all memory of a side that its models do not need. Raises Stopped."""
        if which == "candidate":
            self._candidate.release("timing")
        else:
            self._do(which, p.Drop(keep_bytes=0))
            worker = self._sides[which].worker
            with worker.within(REFERENCE_SECONDS):
                worker.release_memory()

    def _do(self, which: Which, *steps: p.Step) -> None:
        job = JobBuilder(self._sides[which].worker, self._device, at_once=True)
        for step in steps:
            job.step(step)
        self._run(which, job, "preparing a timed call")

    def _run(self, which: Which, job: JobBuilder, doing: str) -> JobResult:
        return self._candidate.run(job, "timing", doing) if which == "candidate" else self._oracle.process.run(job)

    def _doing(self, phase: Phase) -> str:
        return f"timing {phase} on variant {self._case.variant}"

    def _buffers(self, side: Side) -> dict[str, TensorSpec]:
        places = side.matching.places
        buffers = {name: value for name, value in self._case.buffers.items() if name in places}
        return {places[name].name: TensorSpec(places[name].shape, value.dtype) for name, value in buffers.items()}

    def _shape(self, side: Side, name: str) -> tuple[int, ...]:
        """The shape of an operand on this side."""
        place = side.matching.places.get(name)
        return tuple(self._case.operand(name).shape) if place is None else place.shape


def spacers(device: Device) -> tuple[int, ...]:
    """Random sizes, in bytes, of the tensors that are allocated before a sample's.

    The place of a call's tensors costs some percent, and a drawn one turns that into noise. A fixed one would favour
    one process throughout, and the next candidate too, which gets the pages that the last one freed. The referee draws
    the sizes, since a submission cannot seed its generator.
    """
    timing = backend(device).timing
    steps = timing.spacer_bytes // timing.spacer_step
    return tuple(timing.spacer_step * (1 + chance.draw.randrange(steps)) for _ in range(timing.spacers))


def _call(phase: Phase, results: Sequence[JobResult]) -> Call:
    times = {
        part: Time(result.of(p.Timed)[0].ms, result.interval_ms, waited=result.waited_ms)
        for part, result in zip(PARTS[phase], results, strict=True)
    }
    return Call(times, {source: tensor for result in results for source, tensor in result.sealed.items()})
