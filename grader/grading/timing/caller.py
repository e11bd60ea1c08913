"""How one arm makes its timed calls: on a CPU each part is a job, on a GPU it is put on the referee's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec, TimelineJob, WorkerLost
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import lost
from grader.grading.timing.call import PARTS, Call, Draw, Part, Phase, Side
from grader.grading.timing.clocks import Time
from grader.grading.timing.spacing import spacers
from grader.verdict.models import Device

HOST_FLUSH_BYTES = 64 << 20
_CLEAR = p.Drop(empty_cache=False)
"""What the last call left goes, in one job with what follows: one of its own costs as much as a short call."""


class NotQueued(Exception):
    """A call waited for the GPU before all of it was queued, and was let in late: its time says nothing."""


class Caller:
    """For both sides. What a call leaves in a worker, but for what its submission keeps, is gone before the next."""

    def __init__(self, sides: Sequence[Side], candidate: Candidate, oracle: Oracle, case: Case, *, tf32: bool) -> None:
        self._sides, self._candidate, self._desk, self._case, self._tf32 = sides, candidate, oracle, case, tf32
        self._device = oracle.device
        self._flush_bytes = flush_bytes(oracle.device)
        for index in range(len(sides)):
            self._do(index, _CLEAR)

    def calls(self, index: int, phase: Phase, draws: Sequence[Draw], *, queued: bool) -> list[Call]:
        """One for each draw, by the side of this index. Raises NotQueued where `queued` calls could not be, Stopped."""
        if self._device is Device.CPU:
            self._do(index, _CLEAR, p.Flush(nbytes=self._flush_bytes, spacers=spacers(self._device)))
            found = [self._on_host(index, phase, draws[0])]
            for draw in draws[1:]:
                self._do(index, _CLEAR)
                found.append(self._on_host(index, phase, draw))
            return found
        if len(draws) > 1:  # caches are flushed for each call, by `Queue`
            self._do(index, p.Flush(nbytes=0, spacers=spacers(self._device)))
        return [self._on_gpu(index, phase, draw, queued) for draw in draws]

    def _on_host(self, index: int, phase: Phase, draw: Draw) -> Call:
        found = []
        for part in PARTS[phase]:
            script = JobBuilder(self._sides[index].worker, Device.CPU, at_once=True)
            self._fill(script, index, phase, part, draw)
            found.append(self._run(index, script, self._doing(phase)))
        return _call(phase, found)

    def _on_gpu(self, index: int, phase: Phase, draw: Draw, queued: bool) -> Call:
        """Each part in a job of its own: what is queued at once has to fit into the GPU's queue."""
        found = []
        for part in PARTS[phase]:
            last = part == PARTS[phase][-1]
            script = TimelineJob(self._sides[index].worker, queued=queued, drop=last)
            self._fill(script, index, phase, part, draw, alone=not queued)
            finding = self._run(index, script, self._doing(phase))
            if not finding.queued:
                self._do(index, _CLEAR)
                raise NotQueued
            found.append(finding)
        return _call(phase, found)

    def _fill(
        self, script: JobBuilder, index: int, phase: Phase, part: Part, draw: Draw, *, alone: bool = False
    ) -> None:
        """What one part of a call is made on, the part itself, and what comes back of it."""
        side, case = self._sides[index], self._case
        if part != "backward":
            state = {side.names[name]: value for name, value in draw.state.items() if name in side.names}
            script.set_state(MODEL, state)
            script.put_inputs("t", draw.inputs, requires_grad=phase == "training")
        timed: dict[str, Any] = {
            "part": part,
            "model": MODEL,
            "inputs": "t",
            "tape": "t",
            "grads": "t",
            "cotangents": script.cotangents(draw.cotangents) if part == "backward" else {},
            "wrt": tuple(side.operands.values()) if part == "backward" else (),
            "training": case.training,
            "tf32": self._tf32,
            "clone_inputs": case.clone_inputs,
        }
        if self._device is Device.CUDA:
            script.step(p.Queue(**timed, flush_bytes=self._flush_bytes, alone=alone))
        else:
            script.step(p.Time(**timed))
        if part == "backward":
            gradients = {
                theirs: TensorSpec(side.shapes[name], case.operand(name).dtype)
                for name, theirs in side.operands.items()
            }
            script.export(exports("grad", "t", gradients))
        else:
            script.export(exports("output", "t", output_specs(case)))
            script.export({f"state:{MODEL}:{theirs}": spec for theirs, spec in self._buffers(side).items()})

    def give_back(self, index: int) -> None:
        """Have a side give all memory back that its models do not need. Raises Stopped."""
        self._do(index, p.Drop())
        try:
            self._sides[index].worker.release_memory()
        except WorkerLost as error:
            if index == 0:
                raise
            raise lost(error, "timing", "giving memory back between timed calls") from error

    def _do(self, index: int, *steps: p.Step) -> None:
        script = JobBuilder(self._sides[index].worker, self._device, at_once=True)
        for step in steps:
            script.step(step)
        self._run(index, script, "preparing a timed call")

    def _run(self, index: int, script: JobBuilder, doing: str) -> JobResult:
        return self._candidate.run(script, "timing", doing) if index else self._desk.run(script)

    def _doing(self, phase: Phase) -> str:
        return f"timing {phase} on variant {self._case.variant}"

    def _buffers(self, side: Side) -> dict[str, TensorSpec]:
        found = {name: of for name, of in self._case.buffers.items() if name in side.names}
        return {side.names[name]: TensorSpec(side.shapes[name], of.dtype) for name, of in found.items()}


def flush_bytes(device: Device) -> int:
    """To write so that caches are cold."""
    if device is Device.CUDA:
        return 2 * int(torch.cuda.get_device_properties(0).L2_cache_size)
    return HOST_FLUSH_BYTES


def _call(phase: Phase, found: Sequence[JobResult]) -> Call:
    times = {
        part: Time(finding.of(p.Timed)[0].ms, finding.bracket_ms)
        for part, finding in zip(PARTS[phase], found, strict=True)
    }
    return Call(times, {source: tensor for finding in found for source, tensor in finding.sealed.items()})
