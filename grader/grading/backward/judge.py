"""Judges the backward: the products of every case, then causes of a wrong one or post-checks.

A fault that a post-check finds is reported as another if the plain product of another draw shows that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from grader.grading.backward.causes import explain
from grader.grading.backward.experiments import Experiment, ExperimentCases, experiments
from grader.grading.backward.mistakes import rounded_gradients
from grader.grading.backward.products import JudgedProduct, judge_product
from grader.grading.backward.run_experiments import FEWEST, PRODUCTS_EACH, run_experiments
from grader.grading.budget import Drawn, Stopwatch, left_out
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import wrong_at_full_size
from grader.grading.candidate.vjp import product, product_job
from grader.grading.compare.expected import EPSILON
from grader.grading.compare.scaling import REDUCED_PRECISION, ROUNDING_RESIDUAL, change
from grader.grading.forward.judge import judge_case
from grader.grading.forward.probes import INFORMATION
from grader.grading.messages import MAX_LISTED, diagnose, on_another_draw, said_of_eval
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import is_float, with_moved
from grader.grading.random.seeded import check_other_sizes
from grader.grading.shortage import ran_short
from grader.grading.status import Judged, errors_first, stage_status, status_of
from grader.verdict.models import Diagnosis, Status
from grader.verdict.stages import BackwardResult, StageStatus, TensorCheck, VariantResult


def judge_backward(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    experiment_cases: Sequence[ExperimentCases],
    *,
    noise: Sequence[Case] = (),
    seconds: float,
) -> Judged[BackwardResult]:
    """Judge every case's product up to the first failure, then look for its cause or run post-checks.

    `experiment_cases` are in train() and, for a reference that distinguishes the modes, in eval(). Rounding decides the
    gradients of cases in `noise`. If the post-checks take more than `seconds`, a random choice of them runs. Raises
    Stopped.
    """
    started = time.monotonic()
    rows: dict[str, TensorCheck] = {}
    variants: list[VariantResult] = []
    diagnoses: list[Diagnosis] = []
    selected: Sequence[Experiment] = ()
    watch = Stopwatch(lambda: candidate.clock() - oracle.process.seconds_run)
    for case in (*noise, *cases):
        with watch.of(case.variant):
            values_decide = not case.gradients_are_noise
            judged = judge_product(candidate, oracle, case) if values_decide else judge_noise(candidate, oracle, case)
        candidate.release_after(case, "backward")
        diagnoses = judged.diagnoses or (
            rounded_gradients(candidate, oracle, case, judged.product) if values_decide else []
        )
        status = StageStatus.FAILED if diagnoses else StageStatus.PASSED
        variants.append(VariantResult(variant=case.name, status=status, seed=case.seed, tensors=tuple(judged.checks)))
        _keep_worst(rows, judged.checks)
        if diagnoses:
            judged = replace(judged, diagnoses=diagnoses)
            if values_decide:
                failed = set() if judged.missing else {one.name for one in judged.checks if one.status == "failed"}
                variants += wrong_at_full_size(
                    candidate,
                    cases,
                    case,
                    failed,
                    lambda whole: judge_product(candidate, oracle, whole).checks,
                    "backward",
                )
                diagnoses, selected = _explained(candidate, oracle, cases, case, judged, experiment_cases)
            break
    else:
        if experiment_cases:
            diagnoses, selected = _post_checks(candidate, oracle, cases, experiment_cases, watch, seconds)
        diagnoses += _not_comparable(cases)
    diagnoses = errors_first(diagnoses)
    result = BackwardResult(
        status=stage_status(diagnoses),
        gradients=tuple(rows.values()),
        variants=tuple(variants),
        experiments=tuple(experiment.code for experiment in selected),
        seconds=time.monotonic() - started,
    )
    return Judged(result, tuple(diagnoses))


def _explained(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    case: Case,
    judged: JudgedProduct,
    experiment_cases: Sequence[ExperimentCases],
) -> tuple[list[Diagnosis], Sequence[Experiment]]:
    """The diagnoses of a wrong product, and the experiments that looked for its cause, in the case's mode."""
    if judged.gradients_are_right or not experiment_cases:
        return judged.diagnoses, ()
    in_eval_too = [one.eval_cases for one in experiment_cases if one.eval_cases is not None]
    same_mode = (one for one in (*experiment_cases, *in_eval_too) if one.first.training == case.training)
    run_on = replace(next(same_mode, experiment_cases[0]), eval_cases=None)
    selected = () if judged.missing else experiments("cause", "train")
    try:
        return explain(candidate, oracle, cases, case, judged, run_on), selected
    except Exception as error:
        if not ran_short(error):
            raise
        return judged.diagnoses, ()  # wrong all the same, although the device's memory is too short to say why


def _post_checks(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    experiment_cases: Sequence[ExperimentCases],
    watch: Stopwatch,
    seconds: float,
) -> tuple[list[Diagnosis], Sequence[Experiment]]:
    """The diagnoses of the post-checks for which there is time, and these experiments."""
    in_train, *others = experiment_cases
    checks, first = experiments("post-check", "train"), in_train.first
    if candidate.starts_slowly(seconds):  # it may compile for each layout of an input
        checks = tuple(check for check in checks if check.code not in INFORMATION)
    turns = PRODUCTS_EACH * sum(len(one.modes) for one in experiment_cases)
    limit = seconds / (turns * len(checks))
    each = turns * watch.steady(first.variant, limit, partial(judge_product, candidate, oracle, first))
    weights = [check.weight for check in checks]
    drawn = Drawn(checks, each, seconds, candidate.clock, fewest=FEWEST, weights=weights)
    diagnoses = controlled_experiments(candidate, oracle, in_train, drawn)
    for other in others:
        if status_of(diagnoses) is Status.CORRECT:
            in_eval_too = [one for one in experiments("post-check", "eval") if one in drawn.begun]
            more = controlled_experiments(candidate, oracle, other, in_eval_too)
            diagnoses += [said_of_eval(diagnosis) for diagnosis in more if diagnosis.severity == "error"]
    if status_of(diagnoses) is Status.CORRECT:
        diagnoses += check_other_sizes(candidate, oracle, cases, first, diagnoses)
    return [*diagnoses, *left_out("post-checks", [one.code for one in drawn.left_out], each)], drawn.begun


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


def controlled_experiments(
    candidate: Candidate, oracle: Oracle, run_on: ExperimentCases, selected: Iterable[Experiment]
) -> list[Diagnosis]:
    """The diagnoses of experiments; those of a plain call instead if one of another draw is wrong.

    Experiments also use draws that were not judged. Raises Stopped.
    """
    diagnoses = run_experiments(candidate, oracle, run_on, selected)
    failed = {diagnosis.code for diagnosis in diagnoses if diagnosis.severity == "error"}
    if not failed or failed & {one.code for one in experiments("post-check", "train") if one.lasting}:
        return diagnoses
    for mode in run_on.modes:
        case = mode.second()
        if case is mode.first or not case.values_comparable:
            continue
        judged = judge_product(candidate, oracle, case)
        if not judged.gradients_are_right:
            others = [diagnosis for diagnosis in diagnoses if diagnosis.severity != "error"]
            if (output := judge_case(candidate, oracle, case)[1]) is not None:
                return [on_another_draw(run_on.of_mode(mode, output) or output), *others]
            stale = _keeps_an_operand(candidate, oracle, mode.first, case, judged)
            alone = replace(mode, first=case, eval_cases=None)
            found = [stale] if stale else explain(candidate, oracle, (), case, judged, alone)
            found = [run_on.of_mode(mode, one) or one for one in found]
            return [*(found if stale else map(on_another_draw, found)), *others]
    return diagnoses


def _keeps_an_operand(
    candidate: Candidate, oracle: Oracle, earlier: Case, case: Case, judged: JudgedProduct
) -> Diagnosis | None:
    """A diagnosis if a wrong gradient does not follow an operand that the right one follows.

    It is `stale_saved_state` if the right one follows it in the earlier case too, in which the gradient was right: only
    one that was kept is right there.
    """
    if judged.product is None:
        return None
    wrong = [fault.name for fault in judged.faults]
    before = judged.product.gradients
    floats = [name for name in case.wrt if is_float(case.operand(name))][:MAX_LISTED]
    # Noise that carries an element over a non-smooth point changes a gradient that keeps the operand too: ask again.
    for moved in floats * 4:
        other = with_moved(case, moved)
        due = known_mistakes.gradients(oracle, other, "none")
        result = candidate.attempt(product_job(candidate, other), "backward", f"backward with another {moved}")
        after = product(candidate, other, result).gradients
        for name in wrong:
            expected, ours, then = case.gradients[name], after.get(name), before[name]
            if expected is None or ours is None or then is None or name not in due:
                continue
            follows = change(expected.reference64, due[name].reference64) > ROUNDING_RESIDUAL
            if follows and change(then, ours) < EPSILON:
                gradient, operand = f"the gradient of `{case.operand_names[name]}`", case.operand_names[moved]
                if not _follows(oracle, earlier, name, moved):
                    what = f"{gradient} does not follow `{operand}`: a change of it has no effect"
                    remedy = f"use `{operand}` in the backward too, as the reference's derivative does"
                    return on_another_draw(diagnose("grad_wrong", what, where=case.where, remedy=remedy))
                what = (
                    f"after forward A and forward B, {gradient} for B is that for an earlier `{operand}`: a change of "
                    "it has no effect"
                )
                remedy = "keep what backward needs with ctx.save_for_backward in every forward"
                return diagnose("stale_saved_state", what, remedy=remedy)
    return None


def _follows(oracle: Oracle, case: Case, name: str, moved: str) -> bool:
    """Whether the right gradient changes with noise in an operand.

    Noise of several sizes: a small one may change the sign of no input of a ReLU. A reference that asserts a range
    gets little noise alone: a GPU's context does not survive values outside it.
    """
    expected = case.gradients[name]
    for relative in (REDUCED_PRECISION,) * 4 if oracle.traits(case).asserts else (REDUCED_PRECISION, 0.03, 1.0):
        due = known_mistakes.gradients(oracle, with_moved(case, moved, relative), "none").get(name)
        if expected and due and change(expected.reference64, due.reference64) > ROUNDING_RESIDUAL:
            return True
    return False


def judge_noise(candidate: Candidate, oracle: Oracle, case: Case) -> JudgedProduct:
    """One product of an ill-posed case (`oracle/comparability.py`), and the experiment. Raises Stopped."""
    judged = judge_product(candidate, oracle, case)
    if judged.diagnoses or judged.product is None:
        return judged
    run_on = ExperimentCases.of_one(case, oracle.budget.experiment_seconds)
    # The experiment that compares gradients with each other instead of the reference's.
    linear = [one for one in experiments("post-check", "train") if one.code == "ignores_grad_output"]
    return replace(judged, diagnoses=run_experiments(candidate, oracle, run_on, linear))
