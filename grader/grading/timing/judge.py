"""The timing stage: rounds over two workers, on inputs that nobody has seen, outputs sealed and compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.timing import workload
from grader.grading.timing.call import Phase
from grader.grading.timing.clocks import timing_of
from grader.grading.timing.device_clocks import ClockWatch, DeviceClocks
from grader.grading.timing.pair import Arms
from grader.grading.timing.rounds import Plan, Rounds, WrongOutput, collect
from grader.verdict.models import Device, Diagnosis, PhaseTiming, StageStatus, Status, TimingResult

LARGE_CASE_BYTES = 2 << 30
"""A case that takes more of the device's memory is let go before it is timed."""


@dataclass(frozen=True)
class TimingJudgement:
    result: TimingResult
    diagnoses: tuple[Diagnosis, ...]
    """Of severity error when a timed output was wrong."""

    @property
    def status(self) -> Status:
        """What a failed timing stage makes of the verdict."""
        if self.result.status is not StageStatus.FAILED:
            return Status.CORRECT
        wrong = {diagnosis.code for diagnosis in self.diagnoses}
        return Status.WRONG_BACKWARD if "timed_gradient_wrong" in wrong else Status.WRONG_OUTPUT


def judge_timing(
    candidate: Candidate,
    oracle: Oracle,
    case: Case,
    plan: Plan,
    *,
    training: bool = True,
    tf32: bool = True,
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> TimingJudgement:
    """Time one variant; without `training` the forward alone, with `tf32` as PyTorch ships. Raises Stopped.

    `quiet` keeps others from disturbing what counts: the warm-up does not, and goes on while they come to rest.
    """
    if not case.values_comparable:
        message = "the reference draws random numbers: what cannot be compared is not timed"
        told = diagnose("not_comparable", message, stage="timing", severity="info")
        return TimingJudgement(TimingResult(status=StageStatus.SKIPPED, variant=case.variant), (told,))
    phases: tuple[Phase, ...] = ("inference", "training") if training and case.wrt else ("inference",)
    device = oracle.device
    if case.nbytes > LARGE_CASE_BYTES and device is Device.CUDA:
        workload.work(oracle, case)  # asked again when the bounds are computed, without values
        case.release_values()
        oracle.forget(case.variant)
        oracle.release()
    # A CPU's times are too noisy for one to speak for those that follow.
    known = oracle.remember(("calls", case.variant, tf32), dict[Phase, int]) if device is Device.CUDA else {}
    try:
        rounds = Rounds(Arms(candidate, oracle, case, tf32=tf32), phases, device, known, plan)
        with quiet():
            figures, watch = _figures(rounds, plan, device)
    except WrongOutput as wrong:
        failed = TimingResult(status=StageStatus.FAILED, variant=case.variant)
        return TimingJudgement(failed, (wrong.diagnosis,))
    timings = {name: timing for name, (timing, _) in figures.items()}
    disagreements = [_disagreement(name, timing) for name, (timing, disputed) in figures.items() if disputed]
    result = TimingResult(
        status=StageStatus.PASSED,
        variant=case.variant,
        forward=timings.get("forward"),
        backward=timings.get("backward"),
        total=timings.get("total"),
        clocks=tuple(watch.readings),
    )
    return TimingJudgement(result, (*disagreements[:1], *rounds.diagnoses(), *watch.diagnoses()))


def _figures(rounds: Rounds, plan: Plan, device: Device) -> tuple[dict[str, tuple[PhaseTiming, bool]], ClockWatch]:
    """By name, as `timing_of` has them.

    Once more where the referee's clock contradicts a claim: what disturbs a machine may last for some rounds.
    """
    for _ in range(2):
        watch = ClockWatch(DeviceClocks.of(device))
        figures = {name: timing_of(of) for name, of in collect(rounds, watch, plan, device).items()}
        if not any(disputed for _, disputed in figures.values()):
            break
    return figures, watch


def _disagreement(name: str, timing: PhaseTiming) -> Diagnosis:
    return diagnose(
        "clock_disagreement",
        f"the {name} time claimed inside the sandbox is shorter than the referee's clock allows; "
        f"ranked by the referee's {timing.candidate_ms:.3g} ms",
        severity="warning",
    )
