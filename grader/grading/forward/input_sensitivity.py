"""Probes of a forward that matches: does it follow its inputs and parameters, however they lie in memory, and stay?

All on a small case. The first diagnosis of severity error ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader import protocol as p
from grader.executor import TensorSpec
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.compare.outputs import check_output, same_bits
from grader.grading.forward.output_dependence import judge_load_bearing
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.control import reference_passes
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose, first_line, in_eval
from grader.verdict.models import Diagnosis


def run_probes(candidate: Candidate, oracle: Oracle, cases: Sequence[Case]) -> tuple[Diagnosis, ...]:
    """What the probes found, errors first; of all cases but the first, errors alone. Raises Stopped."""
    found = _probe(candidate, oracle, cases[0])
    for case in cases[1:]:
        if not any(diagnosis.severity == "error" for diagnosis in found):
            more = (diagnosis for diagnosis in _probe(candidate, oracle, case) if diagnosis.severity == "error")
            found = (*map(in_eval, more), *found)
    return found


def _probe(candidate: Candidate, oracle: Oracle, case: Case) -> tuple[Diagnosis, ...]:
    moved = oracle.case(case.variant, training=case.training, draw=1)
    found: list[Diagnosis] = []
    probes: dict[str, Callable[[Candidate], Diagnosis | None]] = {
        "following": lambda of: judge_following(of, case, questions.edited(oracle, case), moved),
        "kept": lambda of: judge_kept(of, oracle, case),
        "load-bearing": lambda of: judge_load_bearing(of, oracle, case),
        "strided": lambda of: judge_strided(of, oracle, case),
    }
    for name, probe in probes.items():
        diagnosis = probe(candidate)
        if diagnosis is None:
            continue
        if diagnosis.severity == "error":
            if reference_passes(oracle, (name, case.seed, case.training), probe):
                return (diagnosis, *found)
            continue
        found.insert(0, diagnosis)
    return tuple(found)


def judge_following(candidate: Candidate, first: Case, edited: Case, moved: Case) -> Diagnosis | None:
    """Outputs follow their inputs and parameters, and leave the inputs alone.

    A, then A with a few elements changed at the same addresses, then A again at new ones, then other inputs and
    parameters at the old ones. Catches results, and weights made ready for them, that are remembered by address, by
    identity, by version counter or by a sample of the contents.
    """
    turns = [
        Turn("a", first, False, ""),
        Turn("a", edited, True, " after a few elements of the input changed in place"),
        Turn("b", first, False, " for the same values at a new address"),
    ]
    if moved.init_inputs == first.init_inputs:
        turns.append(Turn("b", moved, True, " after inputs and parameters changed in place"))
    script = candidate.script(first)
    for index, turn in enumerate(turns):
        case = turn.case
        if case is moved:
            candidate.reset(script, case)
        else:
            candidate.reset_buffers(script, case)
        script.put_inputs(turn.key, case.inputs, reuse_addresses=turn.reuse)
        script.step(p.Forward(model=MODEL, inputs=turn.key, tape=f"t{index}", training=case.training))
        script.export(exports("output", f"t{index}", output_specs(case)))
        if index == 0:
            script.export({f"input:a:{i}": spec for i, spec in _tensor_specs(case).items()})
    finding = candidate.run(script, "forward", "repeated forwards")
    for i in _tensor_specs(first):
        given, left = first.inputs[i], finding.sealed.get(f"input:a:{i}")
        assert isinstance(given, torch.Tensor)
        if not first.clone_inputs and (left is None or not same_bits(given, left)):
            return diagnose(
                "inputs_modified", f"the forward changes its argument {i + 1} in place: write into a new tensor"
            )
    for index, turn in enumerate(turns):
        for name in turn.case.outputs:
            check = check_output(turn.case, finding, f"output:t{index}:{name}", name)
            if check.status == "failed":
                message = f"{check.message}{turn.said}: the output does not follow the input"
                return diagnose("stale_output", message)
    return None


@dataclass(frozen=True)
class Turn:
    """One forward of several in a job."""

    key: str
    case: Case
    reuse: bool
    """Written over the tensors of the turn before with this key."""
    said: str


def _tensor_specs(case: Case) -> dict[int, TensorSpec]:
    """Of the arguments, by position."""
    found = {i: value for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    return {i: TensorSpec(tuple(value.shape), value.dtype) for i, value in found.items()}


def judge_kept(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """What a forward returned is still there after the next ones, as the reference's is."""
    if not case.values_comparable or not questions.keeps_outputs(oracle, case):
        return None
    script = candidate.script(case)
    questions.add_forwards(script, oracle, case)
    finding = candidate.attempt(script, "forward", "keeping one forward's output during the next")
    remedy = "return a fresh tensor from each forward, not a buffer that is kept"
    if finding.failure is not None:
        message = f"after the next forward, the output of the one before raises {first_line(finding.failure)}: {remedy}"
        return diagnose("output_overwritten", message)
    for name in case.outputs:
        if check_output(case, finding, f"output:a:{name}", name).status == "failed":
            message = f"the next forward overwrites the {name} that the one before returned: {remedy}"
            return diagnose("output_overwritten", message)
    return None


def judge_strided(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """The same inputs with NaN between their elements give the same outputs, where they do so for the reference.

    Information where they do not: what get_inputs makes is the contract, and a kernel may rely on it.
    """
    if case.clone_inputs or not case.values_comparable or not questions.takes_strided(oracle, case):
        return None
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, layout="strided")
    script.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
    script.export(exports("output", "a", output_specs(case)))
    script.step(p.Drop())
    finding = candidate.attempt(script, "forward", "forward of inputs that are not contiguous")
    remedy = "call .contiguous() on each input before data_ptr()"
    if finding.failure is not None:
        message = f"for inputs that are not contiguous, the forward raises {first_line(finding.failure)}: {remedy}"
        return diagnose("assumes_contiguous_input", message, severity="info")
    for name in case.outputs:
        check = check_output(case, finding, f"output:a:{name}", name)
        if check.status == "failed":
            message = f"right for contiguous inputs, wrong for strided ones ({check.message}): {remedy}"
            return diagnose("assumes_contiguous_input", message, severity="info")
    return None
