"""Judges the backward: the products of every case, then causes of a wrong one or post-checks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from grader.grading.backward.causes import explain
from grader.grading.backward.control import controlled_experiments
from grader.grading.backward.experiments import Cases, Experiment, experiments
from grader.grading.backward.products import judge_products
from grader.grading.backward.run_experiments import FEWEST, PRODUCTS_EACH
from grader.grading.budget import Drawn, Stopwatch, left_out
from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose, errors_first, in_eval
from grader.grading.random.seeded_gradients import check_other_sizes
from grader.grading.status import stage_status, status_of
from grader.verdict.models import Diagnosis, Status
from grader.verdict.stages import BackwardResult, StageStatus, TensorCheck, VariantResult


@dataclass(frozen=True)
class BackwardJudgement:
    """The stage's result, and its diagnoses, errors first."""

    result: BackwardResult
    diagnoses: tuple[Diagnosis, ...]


def judge_backward(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    experiment_cases: Sequence[Cases],
    *,
    seconds: float = math.inf,
) -> BackwardJudgement:
    """Judge every case's product up to the first failure, then look for its cause or run post-checks.

    `experiment_cases` are in train() and, for a reference that distinguishes the modes, in eval(). If the
    post-checks take more than `seconds`, a random choice of them runs. Raises Stopped.
    """
    started = time.monotonic()
    rows: dict[str, TensorCheck] = {}
    variants: list[VariantResult] = []
    diagnoses: list[Diagnosis] = []
    selected: Sequence[Experiment] = ()
    watch = Stopwatch(lambda: candidate.clock() - oracle.seconds_run)
    for case in cases:
        with watch.of(case.variant):
            judged = judge_products(candidate, case)
        candidate.release_after(case, "backward")
        diagnoses = judged.diagnoses
        status = StageStatus.FAILED if diagnoses else StageStatus.PASSED
        variants.append(VariantResult(variant=case.name, status=status, seed=case.seed, tensors=tuple(judged.checks)))
        _keep_worst(rows, judged.checks)
        if not diagnoses:
            continue
        if not judged.gradients_are_right and experiment_cases:
            selected = () if judged.missing else experiments("cause", "train")
            in_eval_too = [one.in_eval for one in experiment_cases if one.in_eval is not None]
            same_mode = (one for one in (*experiment_cases, *in_eval_too) if one.first.training == case.training)
            run_on = replace(next(same_mode, experiment_cases[0]), in_eval=None)
            diagnoses = explain(candidate, oracle, cases, case, judged, run_on)
        break
    else:
        if experiment_cases:
            checks, first = experiments("post-check", "train"), experiment_cases[0].first
            turns = PRODUCTS_EACH * sum(len(one.modes) for one in experiment_cases)
            limit = seconds / (turns * len(checks))
            each = turns * watch.steady(first.variant, limit, partial(judge_products, candidate, first))
            drawn = Drawn(checks, each, seconds, candidate.clock, fewest=FEWEST)
            diagnoses = _post_checks(candidate, oracle, cases, experiment_cases, drawn)
            diagnoses += left_out("post-checks", [one.code for one in drawn.left_out], each)
            selected = drawn.begun
        diagnoses += _not_comparable(cases)
    diagnoses = errors_first(diagnoses)
    result = BackwardResult(
        status=stage_status(diagnoses),
        gradients=tuple(rows.values()),
        variants=tuple(variants),
        experiments=tuple(experiment.code for experiment in selected),
        seconds=time.monotonic() - started,
    )
    return BackwardJudgement(result, tuple(diagnoses))


def _post_checks(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    experiment_cases: Sequence[Cases],
    drawn: Drawn[Experiment],
) -> list[Diagnosis]:
    in_train, *others = experiment_cases
    diagnoses = controlled_experiments(candidate, oracle, in_train, drawn)
    for other in others:
        if status_of(diagnoses) is Status.CORRECT:
            in_eval_too = [one for one in experiments("post-check", "eval") if one in drawn.begun]
            more = controlled_experiments(candidate, oracle, other, in_eval_too)
            diagnoses += [in_eval(diagnosis) for diagnosis in more if diagnosis.severity == "error"]
    if status_of(diagnoses) is Status.CORRECT:
        diagnoses += check_other_sizes(candidate, oracle, cases, in_train.first, diagnoses)
    return diagnoses


def _not_comparable(cases: Sequence[Case]) -> list[Diagnosis]:
    random = [case.name for case in cases if not case.values_comparable]
    if not random:
        return []
    what = (
        f"the reference draws random numbers in variant {', '.join(random)}: there, the outputs' distribution was "
        "compared, and each gradient as a whole with the submission's own forward, if a seed repeats it"
    )
    return [diagnose("not_comparable", what, severity="info")]


def _keep_worst(rows: dict[str, TensorCheck], checks: Sequence[TensorCheck]) -> None:
    rank = {"missing": 3, "failed": 2, "not_checked": 1, "passed": 0}
    for check in checks:
        old = rows.get(check.name)
        worse = old is None or (rank[check.status], check.rel_rms_error or 0.0) > (
            rank[old.status],
            old.rel_rms_error or 0.0,
        )
        if worse:
            rows[check.name] = check
