"""Many runs of a forward that draws random numbers, on the same inputs, parameters and buffers.

Only the first one of a job is seeded: who draws from PyTorch's generators has other numbers in each all the same, and
who makes a generator of its own from their seed repeats itself.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate import MODEL, Candidate, export_buffers, exports, output_specs
from grader.grading.compare.blocks import reals
from grader.grading.oracle.case import Case

OF_A_JOB = 16
BYTES_OF_A_JOB = 64 << 20
MAX_ELEMENTS = 1 << 20
"""Of an output, that are looked at all."""
WINDOW_ELEMENTS = 1 << 19
"""Of a larger one, at its start, in its middle and at its end."""
PLACES = (0.0, 0.5, 1.0)


class Part(NamedTuple):
    """What is looked at of an output, or of a buffer after the forward."""

    name: str
    buffer: bool
    place: float | None
    """Of a window; None: all of it."""

    @property
    def label(self) -> str:
        return f"buffer `{self.name}`" if self.buffer else self.name


Runs = Mapping[Part, torch.Tensor]
"""Of one run, in float64, a complex number as two."""


def random_parts(case: Case) -> list[Part]:
    """Of what the reference's random numbers are in."""
    found = []
    for buffer, expected in ((False, case.outputs), (True, case.buffers)):
        for name, of in expected.items():
            if not case.comparable("buffers" if buffer else "outputs", name):
                whole = of.reference64.numel() <= MAX_ELEMENTS
                found += [Part(name, buffer, place) for place in ((None,) if whole else PLACES)]
    return found


def runs(candidate: Candidate, case: Case, *, grad: bool) -> Iterator[Runs]:
    """One after another, without end. Raises Stopped."""
    parts = random_parts(case)
    nbytes = sum(of.reference64.numel() * of.dtype.itemsize for of in case.outputs.values())
    # Where a buffer lies, only the last forward of a job leaves it.
    of_a_job = 1 if any(part.buffer for part in parts) else max(1, min(OF_A_JOB, BYTES_OF_A_JOB // max(nbytes, 1)))
    for _ in count():
        finding = _job(candidate, case, grad, of_a_job)
        for turn in range(of_a_job):
            yield {part: _seen(candidate, case, finding, turn, part) for part in parts}


def _job(candidate: Candidate, case: Case, grad: bool, number: int) -> JobResult:
    script = candidate.script(case)
    for turn in range(number):
        candidate.reset_buffers(script, case)
        script.put_inputs("a", case.inputs, requires_grad=grad)
        script.step(
            p.Forward(
                model=MODEL,
                inputs="a",
                tape=str(turn),
                training=case.training,
                grad=grad,
                seed=None if turn else secrets.randbits(62),
                clone_inputs=case.clone_inputs,
            )
        )
        script.export(exports("output", str(turn), output_specs(case)))
    export_buffers(script, candidate, case)
    script.step(p.Drop())
    return candidate.run(script, "forward", f"forward of variant {case.name}, again and again")


def _seen(candidate: Candidate, case: Case, finding: JobResult, turn: int, part: Part) -> torch.Tensor:
    """NaN where there is no such tensor."""
    if part.buffer:
        expected, source = case.buffers[part.name], f"state:{MODEL}:{candidate.buffers(case).get(part.name)}"
    else:
        expected, source = case.outputs[part.name], f"output:{turn}:{part.name}"
    value = finding.sealed.get(source)
    if value is None:
        value = torch.full(expected.shape, math.nan, device=candidate.device.value)
    value = value.view(expected.shape)
    return reals(value if part.place is None else _window(value, part.place))


def _window(value: torch.Tensor, place: float) -> torch.Tensor:
    for dimension, extent in enumerate(value.shape):
        rest = value.numel() // max(extent, 1)
        kept = min(extent, max(WINDOW_ELEMENTS // max(rest, 1), 1))
        value = value.narrow(dimension, round(place * (extent - kept)), kept)
    return value
