"""The timing stage: rounds over two workers on fresh values, with every result sealed and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from grader.grading.candidate.candidate import Candidate
from grader.grading.compare.blocks import HUGE_BYTES
from grader.grading.messages import diagnose
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import KEPT_BYTES, Oracle
from grader.grading.shortage import ran_short
from grader.grading.status import Judged
from grader.grading.timing import shipped_flags
from grader.grading.timing.calls import Phase, phases_of
from grader.grading.timing.clocks import timing_of
from grader.grading.timing.device_clocks import ClockWatch, DeviceClocks
from grader.grading.timing.pair import WorkerPair
from grader.grading.timing.roofline import counted_work
from grader.grading.timing.rounds import Rounds, WrongOutput, collect
from grader.grading.timing.stopping import RoundLimits
from grader.grading.timing.untimed import fault_of_values
from grader.machine.backends import backend
from grader.verdict.models import Diagnosis
from grader.verdict.stages import FigureTiming, StageStatus, TimingResult

_Times = TypeVar("_Times")


def judge_timing(
    candidate: Candidate,
    oracle: Oracle,
    case: Case,
    limits: RoundLimits,
    *,
    training: bool = True,
    tf32: bool = True,
    others: Sequence[Case] = (),
    pace_apart: float,
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Judged[TimingResult]:
    """Time one case: the forward alone without `training`; with `tf32` as PyTorch ships. Raises Stopped.

    `others` are cases of other sizes: where the flags matter, each has a call under them that does not count.
    `pace_apart` is the difference of the processes' paces that shows (`Resources.align`).
    `quiet` keeps other processes from disturbing what counts. The warm-up does not count and runs before it.
    """
    if not case.values_comparable:
        return _skipped(case)
    phases = phases_of(case, training=training)
    large = case.nbytes > KEPT_BYTES and backend(oracle.device).own_memory
    if large:
        candidate.release("timing")
    tf32 = tf32 and shipped_flags.matter(oracle, case)
    few_bits = tf32 and shipped_flags.applies(oracle, case)

    def timed(*, in_turn: bool) -> tuple[Rounds, dict[str, tuple[FigureTiming, bool]], ClockWatch]:
        with WorkerPair(candidate, oracle, case, tf32=tf32, few_bits=few_bits, in_turn=in_turn) as pair:
            known = _known_calls(oracle, case, phases, tf32=tf32)
            rounds = Rounds(pair, phases, oracle.device, known, limits, pace_apart)
            with quiet():
                return rounds, *_figures(rounds)

    try:
        if few_bits:
            _judge_other_sizes(candidate, oracle, others, training=training)
            shipped_flags.errors(oracle, case)  # remembered, since the values may go
        if large:
            _release_values(oracle, case, tf32=tf32)
        rounds, figures, watch = in_turn_if_short(candidate, oracle, timed) if large else timed(in_turn=False)
    except WrongOutput as error:
        result = TimingResult(status=StageStatus.FAILED, variant=case.variant)
        of_values = fault_of_values(candidate, oracle, error.case, error.source)
        return Judged(result, (of_values or error.diagnosis,))
    timings = {name: timing for name, (timing, _) in figures.items()}
    disagreements = [_disagreement(name, timing) for name, (timing, disputed) in figures.items() if disputed]
    clocks = tuple(watch.readings)
    result = TimingResult(status=StageStatus.PASSED, variant=case.variant, clocks=clocks).model_copy(update=timings)
    return Judged(result, (*disagreements[:1], *rounds.diagnoses(), *watch.diagnoses()))


def in_turn_if_short(candidate: Candidate, oracle: Oracle, timed: Callable[..., _Times]) -> _Times:
    """Times of both sides beside each other, or in turn if memory that seemed to suffice runs out.

    Raises what `timed` raises.
    """
    try:
        return timed(in_turn=False)
    except Exception as error:
        if not ran_short(error):
            raise
    candidate.release("timing")
    oracle.release()
    return timed(in_turn=True)


def _skipped(case: Case) -> Judged[TimingResult]:
    why = diagnose(
        "not_comparable",
        "the reference draws random numbers, so its outputs cannot be compared and are not timed",
        where=f"variant {case.variant}",
        stage="timing",
        severity="info",
    )
    return Judged(TimingResult(status=StageStatus.SKIPPED, variant=case.variant), (why,))


def _release_values(oracle: Oracle, case: Case, *, tf32: bool) -> None:
    """Leave the device's memory to the timed calls, which draw values of their own."""
    counted_work(oracle, case)  # remembered for the bounds, which are computed without the values
    shipped_flags.shipped_error(oracle, case, tf32=tf32)
    case.release_values()
    oracle.cases.forget(case.variant)
    oracle.release()


def _known_calls(oracle: Oracle, case: Case, phases: Sequence[Phase], *, tf32: bool) -> dict[Phase, int]:
    """Calls in one sample by phase, as known from earlier candidates and remembered for later ones."""
    if backend(oracle.device).on_host:  # its times are too noisy for one candidate's to speak for later ones
        return {}
    known = oracle.remember(("calls", case.variant, tf32), dict[Phase, int])
    if case.nbytes > HUGE_BYTES and backend(oracle.device).own_memory:
        known.update(dict.fromkeys(phases, 1))
    return known


def _judge_other_sizes(candidate: Candidate, oracle: Oracle, cases: Sequence[Case], *, training: bool) -> None:
    """Compare one call of each size under the flags of timed calls. Raises WrongOutput, Stopped."""
    for case in cases:
        if not case.values_comparable:
            continue
        phases = phases_of(case, training=training)
        with WorkerPair(candidate, oracle, case, tf32=True, few_bits=True, timed=False) as pair:
            *_, wrong = pair.time_pair(dict.fromkeys(phases, 1), True, counts=False)
        if wrong is not None:
            raise WrongOutput(wrong)


def _figures(rounds: Rounds) -> tuple[dict[str, tuple[FigureTiming, bool]], ClockWatch]:
    """Figures by name, as `timing_of` returns them.

    All rounds are repeated once if the clocks disagree: a disturbance of the machine may last for some rounds.
    """
    for _ in range(2):
        watch = ClockWatch(DeviceClocks.of(rounds.device))
        figures = {name: timing_of(samples) for name, samples in collect(rounds, watch).items()}
        if not any(disputed for _, disputed in figures.values()):
            break
    return figures, watch


def _disagreement(name: str, timing: FigureTiming) -> Diagnosis:
    return diagnose(
        "clock_disagreement",
        f"the {name} time reported inside the sandbox is shorter than the referee's clock allows",
        amount=f"the referee's {timing.candidate_ms:.3g} ms counts",
        remedy="do not touch the timers; if the source does not, grade again on an idle machine",
        severity="warning",
    )
