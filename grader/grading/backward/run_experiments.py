"""Runs backward experiments on a candidate, and each that it fails on the reference as well."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from grader.grading.backward.experiments import Experiment, ExperimentCases
from grader.grading.backward.experiments.conditions import nondeterministic_grad
from grader.grading.candidate.candidate import Candidate
from grader.grading.control import reference_passes, with_memory
from grader.grading.forward.probes import INFORMATION
from grader.grading.messages import VARIES, diagnose, fold
from grader.grading.oracle import capabilities
from grader.grading.oracle.oracle import Oracle
from grader.grading.random.seeded import own_values, reference_inconsistent
from grader.grading.status import errors_first
from grader.grading.stopped import Stopped
from grader.verdict.codes import Severity
from grader.verdict.models import Diagnosis

PRODUCTS_EACH = 4
"""Forwards and backwards of an experiment in each mode, on average over all of them."""
FEWEST = 3
"""Experiments that run however long they take. A choice."""
_CONTROLLED = ("not_comparable", "nondeterministic_grad", "stale_saved_state", *INFORMATION)
"""Codes whose warnings, too, are dropped if the reference gets them: cuDNN's convolutions sum in any order."""


def run_experiments(
    candidate: Candidate, oracle: Oracle, cases: ExperimentCases, experiments: Iterable[Experiment]
) -> list[Diagnosis]:
    """The diagnoses of the experiments; errors first, then warnings.

    A crash in an experiment ends them, and is its answer. Raises Stopped where the cause may be another: time, memory
    or something outside.
    """
    diagnoses: list[Diagnosis] = []
    own_cases = _with_own_values(candidate, cases)
    for experiment in experiments:
        try:
            diagnosis = with_memory(candidate, oracle, partial(experiment.run, candidate, own_cases), "backward")
        except Stopped as stopped:
            diagnoses.append(_crashed(experiment, stopped))
            break
        if diagnosis is None:
            continue
        error = diagnosis.severity == "error"
        if (error or diagnosis.code in _CONTROLLED) and not _reference_passes(
            candidate, oracle, experiment, cases, diagnosis
        ):
            if error and diagnosis.code == "inconsistent_with_forward":
                diagnoses.append(reference_inconsistent(cases.first))
            continue
        if diagnosis.code == "double_backward_unsupported" and not capabilities.differentiates_twice(
            oracle, cases.first
        ):
            continue
        if (error or diagnosis.code in INFORMATION) and not experiment.lasting:
            try:
                diagnosis = _repeated(candidate, own_cases, experiment, diagnosis)
            except Stopped as stopped:
                diagnoses.append(fold(_crashed(experiment, stopped), [diagnosis])[0])
                break
        diagnoses.append(diagnosis)
        if diagnosis.severity == "error" and (experiment.lasting or diagnosis.code == "nondeterministic_grad"):
            break
    return errors_first(diagnoses)


def race(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """`nondeterministic_grad` if the plain product is wrong in some of twenty repeats and right in others.

    Whatever else asks for several products then gets a wrong one by chance.
    """
    found = (nondeterministic_grad(candidate, cases) for _ in range(4))
    return next((one for one in found if one is not None and one.severity == "error"), None)


def wrong_once(*diagnoses: Diagnosis) -> Diagnosis:
    """A race, with what it made wrong in one call and not in an equal one folded under it."""
    race = diagnose(
        "nondeterministic_grad",
        "what one call gets wrong is right when the same calls are made again",
        remedy=VARIES,
        severity="error",
    )
    return fold(race, diagnoses)[0]


def _repeated(candidate: Candidate, cases: ExperimentCases, experiment: Experiment, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis of an experiment that failed, made again: a race where it is right this time. Raises Stopped."""
    if experiment.run(candidate, cases) is None:
        return wrong_once(diagnosis)
    raced = race(candidate, cases)
    return diagnosis if raced is None else fold(raced, [diagnosis] if diagnosis.code != raced.code else [])[0]


def _crashed(experiment: Experiment, stopped: Stopped) -> Diagnosis:
    """The experiment's diagnosis for a crash, because the plain product of the same case ran.

    Raises Stopped where the cause may be another: time, memory or something outside.
    """
    if stopped.kill is not None or stopped.diagnosis.code != "crashed":
        raise stopped
    what = f"{experiment.question} Instead: {stopped.diagnosis.message}"
    # What get_inputs does not promise decides nothing, by a crash either.
    severity: Severity = "info" if experiment.code in INFORMATION else "error"
    return diagnose(experiment.code, what, remedy=experiment.remedy, severity=severity, detail=stopped.diagnosis.detail)


def _reference_passes(
    candidate: Candidate, oracle: Oracle, experiment: Experiment, cases: ExperimentCases, diagnosis: Diagnosis
) -> bool:
    key = experiment.code, len(cases.modes)
    severities = ("error",) if diagnosis.severity == "error" else ("error", "warning", "info")
    return reference_passes(
        candidate,
        oracle,
        cases.first,
        key,
        lambda reference: experiment.run(reference, _with_own_values(reference, cases)),
        severities,
    )


def _with_own_values(candidate: Candidate, cases: ExperimentCases) -> ExperimentCases:
    """The cases with the candidate's values where the reference is random and a seed fixes the candidate.

    Other cases are returned unchanged. Raises Stopped.
    """
    if cases.first.values_comparable:
        return cases
    first, second = own_values(candidate, cases.first), own_values(candidate, cases.second())
    if first is None or second is None:
        return cases
    return replace(cases, first=first, second=lambda: second)
