"""A verdict as one number to train on, or none where it says nothing about the submission."""

from __future__ import annotations

from collections.abc import Collection

from grader.verdict.models import StageStatus, Status, Verdict

NO_KERNEL = ("wraps_reference", "torch_fallback", "no_custom_kernel")
"""Labels of what is right and earns nothing: the task was to write a kernel."""

_SAYS_NOTHING = (Status.NOT_RUN, Status.GRADER_ERROR)


def reward(
    verdict: Verdict,
    *,
    correct: float = 0.3,
    per_speedup: float = 1.0,
    max_speedup: float | None = None,
    built: float = 0.0,
    forward: float = 0.0,
    worthless: Collection[str] = NO_KERNEL,
) -> float | None:
    """The reward of one verdict: `correct + per_speedup * speedup` for a correct submission, else a step or 0.

    The form and its weights are Kevin-32B's (Baronio et al., arXiv:2507.11948): 0.3 for being correct plus the
    speedup, nothing else. `speedup` is of forward and backward together, of the forward where there is nothing to
    differentiate; it is the lower end of the 95% interval, so that noise is not a way to earn, and is capped at the
    speed of light where the verdict has one (`bound_ms`) and at `max_speedup`.

    `built` is for what compiles and loads, `forward` for what has a right forward too. They are 0 unless asked for:
    whatever pays for a stage also pays for staying there. A correct submission that carries one of the `worthless`
    labels, and an integrity violation, get 0.

    None means: do not train on it. `not_run` and `grader_error` say nothing about the submission, a grading of one
    variant is not ranked, and a correct submission that could not be timed has no figure.

    Raises ValueError unless 0 <= built <= forward <= correct, and for a negative `per_speedup`.
    """
    if not 0 <= built <= forward <= correct or per_speedup < 0:
        raise ValueError(
            f"built={built}, forward={forward}, correct={correct}, per_speedup={per_speedup}: a later stage may not "
            "earn less than an earlier one; give 0 <= built <= forward <= correct and per_speedup >= 0"
        )
    if verdict.status in _SAYS_NOTHING or verdict.settings.variant is not None:
        return None
    if verdict.status is Status.INTEGRITY_VIOLATION or set(verdict.labels) & set(worthless):
        return 0.0
    if verdict.status is Status.CORRECT:
        speedup = _speedup(verdict)
        return None if speedup is None else correct + per_speedup * min(speedup, max_speedup or speedup)
    if verdict.forward is not None and verdict.forward.status is StageStatus.PASSED:
        return forward
    return built if _loaded(verdict) else 0.0


def _speedup(verdict: Verdict) -> float | None:
    """What may be relied on: the interval's lower end, no faster than the device allows."""
    timing = verdict.timing
    phase = (timing.total or timing.forward) if timing else None
    if phase is None:
        return None
    return min(phase.ci_low, phase.reference_ms / phase.bound_ms) if phase.bound_ms else phase.ci_low


def _loaded(verdict: Verdict) -> bool:
    """It compiled, and nothing stood in the way of importing it."""
    passed = verdict.build is not None and verdict.build.status is StageStatus.PASSED
    return passed and not any(diagnosis.stage in ("load", "build") for diagnosis in verdict.diagnoses)
