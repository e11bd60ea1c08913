"""A verdict as a scalar reward, or None if it says nothing about the submission."""

from __future__ import annotations

from collections.abc import Collection

from grader.verdict.models import SAYS_NOTHING, Status, Verdict
from grader.verdict.stages import StageStatus

NO_KERNEL = ("wraps_reference", "torch_fallback", "no_custom_kernel")
"""Labels of correct submissions that earn nothing: the task is to write a kernel."""


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
    """The reward: `correct + per_speedup * speedup` for a correct submission, else a step or 0.

    The form and its weights are Kevin-32B's (Baronio et al., arXiv:2507.11948): 0.3 for correctness plus the speedup.
    The speedup is that of forward and backward together, or of the forward if there is nothing to differentiate. It is
    the lower end of the 95% interval, so that noise earns nothing, and is limited by the roofline bound (`bound_ms`) if
    the verdict has one, and by `max_speedup`.

    `built` is the reward for a submission that compiles and loads, `forward` for one with a correct forward. Both are 0
    by default: a reward for a stage is also a reward for stopping there. A submission with one of the `worthless`
    labels gets 0, and so does an integrity violation.

    None means: do not train on it. `not_run` and `grader_error` say nothing about the submission, a grading of one
    variant is not ranked, and a correct submission without a timing has no speedup.

    Raises ValueError unless 0 <= built <= forward <= correct, and for a negative `per_speedup`.
    """
    if not 0 <= built <= forward <= correct or per_speedup < 0:
        raise ValueError(
            f"built={built}, forward={forward}, correct={correct}, per_speedup={per_speedup}: a later stage may not "
            "earn less than an earlier one; give 0 <= built <= forward <= correct and per_speedup >= 0"
        )
    if verdict.status in SAYS_NOTHING or verdict.settings.variant is not None:
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
    """The lower end of the speedup's interval, at most the speedup at the roofline bound."""
    timing = verdict.timing
    phase = (timing.total or timing.forward) if timing else None
    if phase is None:
        return None
    return min(phase.ci_low, phase.reference_ms / phase.bound_ms) if phase.bound_ms else phase.ci_low


def _loaded(verdict: Verdict) -> bool:
    """Whether it compiled and could be imported."""
    passed = verdict.build is not None and verdict.build.status is StageStatus.PASSED
    return passed and not any(diagnosis.stage in ("load", "build") for diagnosis in verdict.diagnoses)
