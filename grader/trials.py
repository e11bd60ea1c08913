"""A part of the process alone, many times over: how the grader itself is tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from grader.models import Device, Diagnosis, Problem, Submission
from grader.stages import inspection, plan
from grader.stages.backward.judge import judge_products
from grader.stages.cases import Case
from grader.stages.following import run_probes
from grader.stages.timing import TimingJudgement, judge_timing
from grader.workshop import Workshop


def judge_draws(
    workshop: Workshop, problem: Problem, submission: Submission, device: Device, variant: str, draws: int
) -> Iterator[tuple[Case, list[Diagnosis]]]:
    """What gradients and probes find wrong in many draws of a variant, in each mode: how false rejects are hunted.

    Raises Stopped where the submission does not import or run.
    """
    desk = workshop.desk(problem, device)
    modes = (True, False) if desk.modes_differ(variant) else (True,)
    with workshop.candidate(submission, device) as candidate:
        for training, draw in itertools.product(modes, range(draws)):
            case = desk.case(variant, training=training, draw=draw)
            found = [*judge_products(candidate, case).diagnoses, *run_probes(candidate, desk, [case])]
            bounds = [inspection.judge_bounds(candidate, case, backward=back) for back in (False, bool(case.wrt))]
            found += [diagnosis for diagnosis in bounds if diagnosis is not None]
            yield case, [diagnosis for diagnosis in found if diagnosis.severity == "error"]
    desk.forget(variant)


def time_alone(
    workshop: Workshop, problem: Problem, submission: Submission, device: Device, *, training: bool = True
) -> TimingJudgement:
    """Times alone, of a source that needs no judging, such as a reference against itself; the forward's alone without
    `training`.

    Raises Stopped, ProblemError.
    """
    desk = workshop.desk(problem, device)
    with workshop.candidate(submission, device) as candidate:
        case = desk.case(plan.variants(desk)[-1])
        rounds = plan.rounds(device, quick=False)
        workshop.align(desk, candidate, case, rounds)
        judged = judge_timing(candidate, desk, case, rounds, training=training, tf32=True)
    desk.release()
    return judged
