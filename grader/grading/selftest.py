"""Tests this machine's times: references against themselves and against slowed copies.

A reference that is its own submission has a speedup of 1, so any difference found is a false alarm. A clock that called
everything the same would pass that, so a copy that takes some percent longer has to be called slower.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import ProblemError
from grader.grading import plan
from grader.grading.resources import Resources
from grader.grading.status import Judged
from grader.grading.timing.judge import judge_timing
from grader.grading.timing.stopping import thorough
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem, Submission
from grader.verdict.stages import FigureTiming, StageStatus, TimingResult

CONVOLUTION = "conv2d_mul_leaky_relu_gelu"
"""The shipped problem that stands for a whole one; its `cpu` size on the CPU."""

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
    """Takes {share} longer. The CPU waits for that share of the call just made. A GPU is kept busy by another kernel,
    calibrated on the second call; starting that takes some microseconds, whatever the share."""

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
class Figure:
    """One figure of one run. The true speedup is 1, or 1 / (1 + planted) if a slowdown was planted."""

    problem: str
    run: int
    planted: float
    """Share by which it takes longer; 0 for the reference itself."""
    figure: str
    reference_ms: float
    speedup: float
    ci_low: float
    ci_high: float
    verdict: str

    @property
    def correct(self) -> bool:
        """Whether the reference is not called different from itself, and a slowed copy is called slower."""
        return self.verdict == "slower" if self.planted else self.verdict not in ("faster", "slower")


def run(resources: Resources, device: Device, convolution: Problem, runs: int) -> Iterator[Figure]:
    """Each figure as it is made. Raises ProblemError if a reference fails against itself."""
    for count in range(1, runs + 1):
        for problem in problems(device, convolution):
            yield from compared(resources, device, problem, count)


def time_alone(
    resources: Resources, problem: Problem, submission: Submission, device: Device, *, training: bool = True
) -> Judged[TimingResult]:
    """Time a source without checks, such as the reference itself; only the forward unless `training`.

    Raises Stopped, ProblemError.
    """
    oracle = resources.oracle(problem, device)
    with resources.candidate(submission, device) as candidate:
        case = oracle.case(plan.variants(oracle)[-1])
        limits = thorough(device)
        apart = resources.align(oracle, candidate, case, limits)
        judged = judge_timing(candidate, oracle, case, limits, training=training, tf32=True, pace_apart=apart)
    oracle.release()
    return judged


def compared(resources: Resources, device: Device, problem: Problem, count: int) -> Iterator[Figure]:
    """The figures of one problem in run number `count`. Raises ProblemError."""
    for planted in (0.0, planted_share(device)):
        # Only the forward is slowed: the slowdown would be a smaller share of the total.
        judged = time_alone(resources, problem, itself(problem, planted=planted), device, training=not planted)
        if judged.result.status is not StageStatus.PASSED:
            raise ProblemError(f"{problem.id} against itself: {judged.diagnoses[0].message}")
        for figure in ("forward",) if planted else ("forward", "backward", "total"):
            phase: FigureTiming = getattr(judged.result, figure)
            yield Figure(
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
    """Problems of about 20 microseconds and about a millisecond, and a whole convolution block."""
    tiny, medium = (12, 20) if backend(device).on_host else (21, 26)  # log2 of the number of elements
    pointwise = (
        Problem(id=name, path=Path(f"{name}.py"), source=_POINTWISE.format(rows=(1 << log2) // 256))
        for name, log2 in (("tiny", tiny), ("medium", medium))
    )
    return (*pointwise, convolution)


def planted_share(device: Device) -> float:
    """Relative slowdown that a thorough timing has to find: three times the margin of longer calls."""
    return round(3 * backend(device).timing.resolution.margin, 3)


def itself(problem: Problem, *, planted: float = 0.0) -> Submission:
    """The reference as a submission to its own problem; its forward takes longer by the share `planted`."""
    if planted:
        source = problem.source + _SLOWED.format(share=planted)
    else:
        source = problem.source.replace("class Model(", "class ModelNew(")
    return Submission(author="selftest", problem_id=problem.id, path=f"{problem.id}.py", source=source)


def summary(figures: Sequence[Figure]) -> dict[str, object]:
    """Errors, false alarms and slowdowns found, over all figures."""
    same = [one for one in figures if not one.planted]
    planted = [one for one in figures if one.planted]
    errors = [abs(one.speedup - 1) for one in same]
    return {
        "median_error": statistics.median(errors) if errors else None,
        "worst_error": max(errors, default=None),
        "compared": len(same),
        "called_faster": sum(one.verdict == "faster" for one in same),
        "called_slower": sum(one.verdict == "slower" for one in same),
        "planted": len(planted),
        "planted_found": sum(one.correct for one in planted),
    }
