"""Both workers, reference and candidate, ready to run the same calls on the same fresh values.

Forward and backward of a training step are two parts: the grad_output is released when the outputs are sealed. The
candidate's processes stand still while the reference runs, and on a CPU the other way round too. Inputs, parameters and
grad_outputs are new in every call.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import statistics
from collections.abc import Callable, Iterator, Sequence

import torch

from grader.catalog.problem_module import Variant
from grader.executor import WorkerLost
from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import draw_cotangent, draw_inputs, is_float, is_mask
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import lost
from grader.grading.threads import on_one_thread
from grader.grading.timing.call import Call, Draw, Part, Phase, Side
from grader.grading.timing.caller import Caller
from grader.grading.timing.clocks import Time
from grader.grading.timing.comparison import Comparison
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis

MOVE = 0.05
"""Relative size of what is added to the parameters for each call, so that nothing made of old ones is of use."""
MIDDLE: dict[Device, Callable[[list[float]], float]] = {
    Device.CPU: statistics.median,
    Device.CUDA: statistics.fmean,
}
"""Of a sample's calls. On a CPU, one that something else held up says nothing; a GPU's are of two kinds (TRIMMED says
more), and one that is held up goes with its pair."""
SAME_INPUT_NOISE = 1e-3
"""Relative size of what is added to the inputs of a problem that draws the same ones each time."""


IN_TURN_BYTES = 4 << 30
"""Of inputs, grad_outputs, outputs and gradients of one call."""


class Arms:
    """Both workers, ready to run the same calls on the same fresh inputs."""

    def __init__(self, candidate: Candidate, oracle: Oracle, case: Case, *, tf32: bool) -> None:
        self._tf32, self._candidate, self._desk, self._case = tf32, candidate, oracle, case
        matching = candidate.prepare(case)
        oracle.ready(case)
        ours = {name: name for name in case.wrt}
        shapes = {name: tuple(case.operand(name).shape) for name in (*case.wrt, *case.state)}
        theirs = candidate.operands(case)
        their_shapes = {name: candidate.shape(case, name) for name in (*theirs, *matching.names)}
        self._sides = (
            Side(oracle.worker, ours, shapes, {name: name for name in case.state}),
            Side(candidate.worker, theirs, their_shapes, matching.names),
        )
        self._caller = Caller(self._sides, candidate, oracle, case, tf32=tf32)
        self._in_turn = oracle.device is Device.CUDA and (
            case.nbytes > IN_TURN_BYTES or not backend(oracle.device).ample_memory()
        )
        """Each side gives its memory back before the other is called."""
        if self._in_turn:
            self._release_memory()
        self.queues = False
        """On a GPU: both queue their calls before the inputs come. Not for a first call, which loads and allocates."""
        self._same_inputs = self._draws_the_same()
        self._tables = oracle.traits(case).tables

    def pair(
        self, phase: Phase, reference_first: bool, calls: int
    ) -> tuple[dict[Part, Time], dict[Part, Time], Diagnosis | None]:
        """Times of (reference, candidate) per call, on values drawn for this pair alone, and what was wrong.

        Raises NotQueued where one should have queued a call and could not.
        """
        draws = [self._draw(phase) for _ in range(calls)]
        made: dict[int, list[Call]] = {}
        for index in (0, 1) if reference_first else (1, 0):
            with self._other_paused(index), _out_of_the_way(self._desk.device):
                made[index] = self._caller.calls(index, phase, draws, queued=self.queues)
            if self._in_turn:
                self._caller.give_back(index)
        comparison = Comparison(self._desk, self._case, self._sides[1].operands, self._sides[1].names, self._tf32)
        wrong = (comparison.difference_of(*of_one) for of_one in zip(draws, made[0], made[1], strict=True))
        middle = MIDDLE[self._desk.device]
        return _typical(made[0], middle), _typical(made[1], middle), next((found for found in wrong if found), None)

    def wake(self, phase: Phase) -> None:
        """A GPU that had nothing to do for a while takes some percent longer for the next call: one that counts not."""
        if self._desk.device is Device.CUDA:
            with self._other_paused(0):
                self._caller.calls(0, phase, [self._draw(phase)], queued=self.queues)

    def _draw(self, phase: Phase) -> Draw:
        device = self._desk.device
        _, inputs = draw_inputs(self._variant(), device, secrets.randbits(62))
        if self._same_inputs:
            inputs = [
                _moved(value, SAME_INPUT_NOISE) if is_float(value) and not is_mask(value) else value for value in inputs
            ]
        state = {
            name: value if name in self._tables or not is_float(value) else _moved(value, MOVE)
            for name, value in self._case.state.items()
        }
        cotangents = {
            name: draw_cotangent(tuple(value.shape), value.dtype, device, False)
            for name, value in self._case.cotangents.items()
        }
        return Draw(inputs, state, cotangents if phase == "training" else {})

    def _release_memory(self) -> None:
        """What is shared with both: the checks sent more at a time than timed calls do."""
        self._desk.worker.release_memory()
        try:
            self._candidate.worker.release_memory()
        except WorkerLost as error:
            raise lost(error, "timing", "getting ready to be timed") from error

    def _variant(self) -> Variant:
        return self._desk.module.variants[self._case.variant]

    def _draws_the_same(self) -> bool:
        one, other = (draw_inputs(self._variant(), self._desk.device, secrets.randbits(62))[1] for _ in range(2))
        return any(
            isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and is_float(a) and torch.equal(a, b)
            for a, b in zip(one, other, strict=True)
        )

    @contextlib.contextmanager
    def _other_paused(self, index: int) -> Iterator[None]:
        """What one arm left running, be it threads that wait for more work, must not slow the other down.

        On a GPU only a candidate could have left anything that does.
        """
        if index and self._desk.device is Device.CUDA:
            yield
            return
        try:
            with self._sides[1 - index].worker.paused():
                yield
        except WorkerLost as error:
            raise lost(error, "timing", "standing still while the reference is timed") from error


@contextlib.contextmanager
def _out_of_the_way(device: Device) -> Iterator[None]:
    """The referee on one thread; for times of the CPU, on the core of the worker's main thread (worker/cores.py)."""
    cores = os.sched_getaffinity(0)
    with on_one_thread():
        if device is Device.CPU:
            os.sched_setaffinity(0, {min(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


def _moved(value: torch.Tensor, share: float) -> torch.Tensor:
    return value * (1 + share * torch.randn_like(value))


def _typical(calls: Sequence[Call], middle: Callable[[list[float]], float]) -> dict[Part, Time]:
    return {
        part: Time(
            middle([call.times[part].claim for call in calls]), middle([call.times[part].bracket for call in calls])
        )
        for part in calls[0].times
    }
