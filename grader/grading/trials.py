"""Runs single stages many times: the trials by which the grader itself is tested."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from grader.grading import inspection, plan
from grader.grading.backward.products import judge_products
from grader.grading.forward.probes import probe_codes, run_probes
from grader.grading.oracle.case import Case
from grader.grading.resources import Resources
from grader.grading.timing import TimingJudgement, judge_timing
from grader.verdict.models import Device, Diagnosis, Problem, Submission


def judge_draws(
    resources: Resources, problem: Problem, submission: Submission, device: Device, variant: str, draws: int
) -> Iterator[tuple[Case, list[Diagnosis]]]:
    """The errors of gradients and probes in many draws of a variant, to search for false rejections.

    Raises Stopped if the submission does not import or run.
    """
    oracle = resources.oracle(problem, device)
    modes = (True, False) if oracle.modes_differ(variant) else (True,)
    with resources.candidate(submission, device) as candidate:
        candidate.reference_constructor = oracle.constructed_under
        for training, draw in itertools.product(modes, range(draws)):
            case = oracle.case(variant, training=training, draw=draw)
            diagnoses = [
                *judge_products(candidate, case).diagnoses,
                *run_probes(candidate, oracle, [case], probe_codes()),
            ]
            bounds = [inspection.judge_bounds(candidate, case, backward=back) for back in (False, bool(case.wrt))]
            diagnoses += [diagnosis for diagnosis in bounds if diagnosis is not None]
            yield case, [diagnosis for diagnosis in diagnoses if diagnosis.severity == "error"]
    oracle.forget(variant)


def time_alone(
    resources: Resources, problem: Problem, submission: Submission, device: Device, *, training: bool = True
) -> TimingJudgement:
    """Time a source without checks, such as the reference itself; only the forward unless `training`.

    Raises Stopped, ProblemError.
    """
    oracle = resources.oracle(problem, device)
    with resources.candidate(submission, device) as candidate:
        case = oracle.case(plan.variants(oracle)[-1])
        rounds = plan.rounds(device, quick=False)
        resources.align(oracle, candidate, case, rounds)
        judged = judge_timing(candidate, oracle, case, rounds, training=training, tf32=True)
    oracle.release()
    return judged
