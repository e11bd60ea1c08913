"""Are the times to be believed here? References against themselves, and against themselves with a slowdown planted.

A reference that is its own submission has a speedup of 1: whatever else is called is a false alarm. And a clock that
called everything the same would pass that, so a copy that takes some percent longer has to be called slower.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import ProblemError
from grader.grading.resources import Resources
from grader.grading.trials import time_alone
from grader.verdict.models import Device, PhaseTiming, Problem, StageStatus, Submission

PLANTED = {Device.CUDA: 0.03, Device.CPU: 0.15}
"""By how much slower: three times the margin below which no difference is called, short calls on a GPU apart."""
CONVOLUTION = "conv2d_mul_leaky_relu_gelu"
"""The shipped problem that stands for a whole one; its `cpu` size on the CPU."""

# Elements of the pointwise chain, by device: about 20 microseconds and about a millisecond.
_SIZES = {Device.CPU: {"tiny": 1 << 12, "medium": 1 << 20}, Device.CUDA: {"tiny": 1 << 21, "medium": 1 << 26}}

_POINTWISE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return torch.sigmoid(x * self.weight)


def get_inputs():
    return [torch.randn({rows}, 256)]


def get_init_inputs():
    return [256]
"""

_SLOWED = '''

import time as _time


class ModelNew(Model):
    """Takes {share} longer: the CPU waits for that share of the call just made; a GPU is kept busy by a kernel of
    its own, calibrated on the second call; starting that takes some microseconds, whatever the share."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._calls, self._cycles = 0, 0

    def forward(self, *args):
        self._calls += 1
        if not any(arg.is_cuda for arg in args if isinstance(arg, torch.Tensor)):
            started = _time.perf_counter()
            result = super().forward(*args)
            until = _time.perf_counter() + {share} * (_time.perf_counter() - started)
            while _time.perf_counter() < until:
                pass
            return result
        if self._calls == 2:
            mine = self._milliseconds(lambda: super(ModelNew, self).forward(*args))
            self._cycles = int({share} * mine / self._milliseconds(lambda: torch.cuda._sleep(1000000)) * 1000000)
        result = super().forward(*args)
        if self._cycles:
            torch.cuda._sleep(self._cycles)
        return result

    @staticmethod
    def _milliseconds(action):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        torch.cuda._sleep(4000000)
        before.record()
        action()
        after.record()
        after.synchronize()
        return before.elapsed_time(after)
'''


@dataclass(frozen=True)
class Finding:
    """One figure of one run; the truth is 1, or 1 / (1 + planted share) where a slowdown was planted."""

    problem: str
    run: int
    planted: float
    """The share by which it takes longer; 0 for the reference itself."""
    figure: str
    reference_ms: float
    speedup: float
    ci_low: float
    ci_high: float
    verdict: str

    @property
    def as_it_should(self) -> bool:
        """Not called different from itself, and called slower where it is."""
        return self.verdict == "slower" if self.planted else self.verdict not in ("faster", "slower")


def run(resources: Resources, device: Device, convolution: Problem, runs: int) -> Iterator[Finding]:
    """Each finding as it is reached. Raises ProblemError where a reference fails against itself."""
    for count in range(1, runs + 1):
        for problem in problems(device, convolution):
            for planted in (0.0, PLANTED[device]):
                # The slowdown stands in the forward: in the total it would be a part of that.
                judged = time_alone(resources, problem, itself(problem, planted=planted), device, training=not planted)
                if judged.result.status is not StageStatus.PASSED:
                    raise ProblemError(f"{problem.id} against itself: {judged.diagnoses[0].message}")
                for figure in ("forward",) if planted else ("forward", "backward", "total"):
                    phase: PhaseTiming = getattr(judged.result, figure)
                    yield Finding(
                        problem.id,
                        count,
                        planted,
                        figure,
                        phase.reference_ms,
                        phase.speedup,
                        phase.ci_low,
                        phase.ci_high,
                        phase.verdict,
                    )


def problems(device: Device, convolution: Problem) -> tuple[Problem, ...]:
    """About 20 microseconds, about a millisecond, and a whole convolution block."""
    made = (
        Problem(id=name, path=Path(f"{name}.py"), source=_POINTWISE.format(rows=size // 256))
        for name, size in _SIZES[device].items()
    )
    return (*made, convolution)


def itself(problem: Problem, *, planted: float = 0.0) -> Submission:
    """The reference as a submission for its own problem; `planted`: the share by which its forward takes longer."""
    if planted:
        source = problem.source + _SLOWED.format(share=planted)
    else:
        source = problem.source.replace("class Model(", "class ModelNew(")
    return Submission(author="selftest", problem_id=problem.id, path=f"{problem.id}.py", source=source)


def summary(findings: Sequence[Finding]) -> dict[str, object]:
    """Of all findings: how far from 1, how many false alarms, how many slowdowns found."""
    same = [finding for finding in findings if not finding.planted]
    planted = [finding for finding in findings if finding.planted]
    errors = [abs(finding.speedup - 1) for finding in same]
    return {
        "median_error": statistics.median(errors) if errors else None,
        "worst_error": max(errors, default=None),
        "compared": len(same),
        "called_faster": sum(finding.verdict == "faster" for finding in same),
        "called_slower": sum(finding.verdict == "slower" for finding in same),
        "planted": len(planted),
        "planted_found": sum(finding.as_it_should for finding in planted),
    }
