"""Replaces the values of a random reference by the submission's own values under one seed.

Equal seeds draw equal numbers, so the submission's gradients must stay the same, whatever a backward experiment does
around them. Whether they are right is tested against the submission's own forward (`seeded_gradients`).
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from grader.grading.backward.experiments import Cases
from grader.grading.backward.vjp import ask, export_outputs, product
from grader.grading.candidate import MODEL, Candidate, export_buffers
from grader.grading.compare.outputs import same_bits
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import perturbed, perturbed_state
from grader.grading.oracle.evaluation import Evaluation
from grader.grading.oracle.trackers import PERTURBED_RUNS, Trackers


def with_own_values(candidate: Candidate, cases: Cases) -> Cases:
    """The cases with the candidate's values where the reference is random and a seed fixes the candidate.

    Other cases are returned unchanged. Raises Stopped.
    """
    if cases.first.values_comparable:
        return cases
    first, second, constant = (_own(candidate, case) for case in (cases.first, cases.second, cases.constant))
    if first is None or second is None or constant is None:
        return cases
    return replace(cases, first=first, second=second, constant=constant)


def _own(candidate: Candidate, case: Case) -> Case | None:
    """The case under a seed of its own, or None where equal calls give other outputs, or one raises."""
    case = replace(case, forward_seed=secrets.randbits(62))
    own, again = _run(candidate, case), _run(candidate, case)
    if own is None or again is None or not all(same_bits(own.outputs[n], again.outputs[n]) for n in case.outputs):
        return None
    trackers = Trackers(own, None, has_float64=True)
    for _ in range(PERTURBED_RUNS):
        inputs, state = perturbed(case.inputs, candidate.device), perturbed_state(case.state, candidate.device)
        run = _run(candidate, replace(case, inputs=tuple(inputs), state=state))
        if run is None or any((run.gradients[name] is None) != (own.gradients[name] is None) for name in case.wrt):
            return None
        trackers.add(run)
    longest = max(of.reduction_length for of in (*case.outputs.values(), *case.gradients.values()) if of is not None)
    gradients = trackers.expected("gradients", lambda _: longest, case.operand_names)
    return replace(
        case,
        outputs=trackers.expected("outputs", lambda _: longest),
        buffers={**case.buffers, **trackers.expected("buffers", lambda _: longest)},
        gradients={
            name: gradients.get(name) if of is not None or name in case.optional else None
            for name, of in case.gradients.items()
        },
        values_comparable=True,
    )


def _run(candidate: Candidate, case: Case) -> Evaluation | None:
    """One forward and backward, by the reference's names."""
    job = ask(candidate, case)
    export_outputs(job, case, "a")
    export_buffers(job, candidate, case)
    result = candidate.attempt(job, "backward", "forward and backward under one seed")
    outputs = {name: result.sealed[f"output:a:{name}"] for name in case.outputs if f"output:a:{name}" in result.sealed}
    if result.failure is not None or outputs.keys() != case.outputs.keys():
        return None
    sources = {ours: f"state:{MODEL}:{theirs}" for ours, theirs in candidate.buffers(case).items()}
    buffers = {
        name: candidate.taken(case, name, result.sealed[source])
        for name, source in sources.items()
        if source in result.sealed
    }
    return Evaluation(outputs, product(candidate, case, result).gradients, buffers)
