"""Probes whether an output stays as it was when the next forward runs."""

from __future__ import annotations

from itertools import product

from grader.grading.candidate import Candidate
from grader.grading.compare.outputs import check_output
from grader.grading.forward.probes import of_mode, probe
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose, first_line, fresh_tensor
from grader.verdict.models import Diagnosis


@probe(
    "output_overwritten",
    question="The next forwards leave a returned output as it was, if the reference's do.",
    rank=20,
)
def outputs_are_kept(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    if not case.values_comparable or not questions.keeps_outputs(oracle, case):
        return None
    job = candidate.script(case)
    questions.add_forwards(job, oracle, case)
    result = candidate.attempt(job, "forward", "keeping one forward's output during the next")
    if result.failure is not None:
        what = f"after the next forward, the output of the previous one raises {first_line(result.failure)}"
        return diagnose("output_overwritten", what, remedy=fresh_tensor("forward", candidate.captures_graphs))
    for training, name in product(case.modes, case.outputs):
        if check_output(case, result, f"output:{questions.tape_of(training)}:{name}", name).status == "failed":
            what = f"the next forward overwrites the {name} that the previous one returned"
            remedy = fresh_tensor("forward", candidate.captures_graphs)
            return of_mode(diagnose("output_overwritten", what, remedy=remedy), case, training)
    return None
