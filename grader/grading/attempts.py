"""Decides whether the verdict of an attempt stands, or another attempt with fewer checks follows.

Another attempt is made

- at full size only, if the submission failed on a variant with fewer rows, which the problem does not promise, and
  what failed can be compared at full size, and did not fail there too;
- with less asked of the full size, then on fewer of its rows, if memory ran out in the grader or in the reference;
- likewise if it ran out in the submission, the problem is large and there was less of it than a submission may take
  (`shortage.py`); else once with the same checks and all memory that the grader can spare, because a submission may
  only say so;
- with the reference's float64 run at full size, for which time was short, if the submission failed there alone: the
  eager run that stood in for it may be the one that is wrong;
- in fresh processes, if a process was lost, or a compiler, that something outside may have ended, such as the host's
  OOM killer or an operator.

Who sends SIGKILL cannot be seen, but a submission that ends itself does so at the same step in three attempts, and
nothing else is lost meanwhile. Only then is it `crashed`. What stays unexplained is an error of the grader, and is
graded again.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace

from grader.errors import ProblemError, ReferenceKilled, ReferenceLost, SandboxError, UserError, reason
from grader.executor import Killer, WorkerLost
from grader.grading.messages import diagnose
from grader.grading.oracle.fewer_rows import ROWS
from grader.grading.plan import EVERYTHING, SCOPES, Scope
from grader.grading.record import Record
from grader.grading.shortage import is_own_shortage, is_shortage
from grader.grading.stopped import Kill, Stopped
from grader.verdict.models import Diagnosis, Status
from grader.verdict.stages import StageStatus, VariantResult


@dataclass(frozen=True)
class Attempt:
    """The scope of one attempt, and the losses before it."""

    scope: Scope = EVERYTHING
    fewer_rows: bool = True
    """Whether the submission is asked for fewer rows than the problem's inputs have."""
    sparing: bool = False
    """Whether the grader keeps as little of the device's memory as with fewer checks."""
    precise: bool = False
    """Whether the reference runs in float64 at full size even if that takes as long as a grading should."""
    lost_before: str | None = None
    """How a process of the grader's own, such as the reference, was lost in an attempt before."""
    kills_before: tuple[Kill, ...] = ()
    """Kills of the submission's processes in the attempts before."""

    @property
    def asks_less(self) -> bool:
        """Whether the reference answers less than for other submissions."""
        return self.sparing or self.scope != EVERYTHING


def next_attempt(attempt: Attempt, record: Record, error: Exception | None) -> Attempt | None:
    """The attempt to make after this one, which ended with `error` or without; None if its verdict stands."""
    if isinstance(error, ReferenceLost | ReferenceKilled | SandboxError | WorkerLost):
        return replace(attempt, lost_before=str(error)) if attempt.lost_before is None else None
    if isinstance(error, Stopped) and error.kill is not None:
        undecided = len(attempt.kills_before) < 2  # the third decides
        return replace(attempt, kills_before=(*attempt.kills_before, error.kill)) if undecided else None
    if is_own_shortage(error):
        return _after_own_shortage(attempt, record)
    if error is not None and is_shortage(error):
        return _asking_less(attempt)
    if record.fewer_rows and _failed_with_fewer_rows(record, error):
        return replace(attempt, fewer_rows=False)
    if record.float64_is_slow and not attempt.precise and error is None and _failed_at_full_size_alone(record):
        return replace(attempt, precise=True)
    return None


def diagnosis_of(error: Exception, attempt: Attempt, *, others_lost: bool = False) -> Diagnosis:
    """The diagnosis that an exception becomes. Raises it again if it is the caller's own mistake.

    A lost reference is the problem's fault only if a fresh process was lost in the same way. `others_lost` says that
    processes without a job ended too since the first attempt, which no submission can cause.
    """
    if isinstance(error, Stopped):
        if error.kill is None or (_repeats(error.kill, attempt) and not others_lost and attempt.lost_before is None):
            return error.diagnosis
        return _unexplained(error, error.kill)
    if is_shortage(error):
        what = f"the problem does not fit into this device's memory: {reason(error)}"
        return diagnose("problem_not_gradable", what, remedy="grade it on a device with more memory")
    if isinstance(error, ProblemError) and not (isinstance(error, ReferenceLost) and str(error) != attempt.lost_before):
        return diagnose("problem_not_gradable", str(error), remedy="see `grader problems check`")
    if isinstance(error, UserError) and not isinstance(error, ProblemError):
        raise error
    what = f"{type(error).__name__}: {error}"
    detail = {"traceback": "".join(traceback.format_exception(error))}
    return diagnose("grader_failed", what, remedy="grade it again", detail=detail)


def _after_own_shortage(attempt: Attempt, record: Record) -> Attempt | None:
    """An attempt with as many checks unless memory was withheld; None for a small problem, which takes little."""
    if not record.large:
        return None
    if record.memory_withheld:
        return _asking_less(attempt)
    return None if attempt.sparing or attempt.scope != EVERYTHING else replace(attempt, sparing=True)


def _asking_less(attempt: Attempt) -> Attempt | None:
    less = SCOPES[SCOPES.index(attempt.scope) + 1 :]
    return replace(attempt, scope=less[0]) if less else None


def _repeats(kill: Kill, attempt: Attempt) -> bool:
    """Whether the submission was at the same step when it was killed twice before, and the host had memory."""
    return kill.killer is not Killer.HOST and attempt.kills_before.count(kill) == 2


def _unexplained(stopped: Stopped, kill: Kill) -> Diagnosis:
    what = f"a process of the submission was killed ({kill.doing}), and so it was in fresh attempts"
    remedy = "grade it again when nothing on the host ends processes; `dmesg` shows what the kernel ended"
    return diagnose("grader_failed", what, remedy=remedy, detail=stopped.diagnosis.detail)


def _failed_with_fewer_rows(record: Record, error: Exception | None) -> bool:
    """Whether a plain forward or backward of fewer rows failed, and the full size can tell too.

    What an experiment finds with fewer rows holds at any size.
    """
    if isinstance(error, Stopped):
        return record.forward is None or (record.backward is None and record.whole_backward)
    if record.status in (Status.CORRECT, Status.MISSING_BACKWARD):
        return False
    stages = (record.forward, record.backward if record.whole_backward else None)
    return any(_last_failed(stage.variants) for stage in stages if stage is not None)


def _failed_at_full_size_alone(record: Record) -> bool:
    stages = (record.forward, record.backward)
    failed = [
        one for stage in stages if stage is not None for one in stage.variants if one.status is StageStatus.FAILED
    ]
    return bool(failed) and not any(variant.variant.startswith(ROWS) for variant in failed)


def _last_failed(variants: tuple[VariantResult, ...]) -> bool:
    last = variants[-1] if variants else None
    return last is not None and last.status is StageStatus.FAILED and last.variant.startswith(ROWS)
