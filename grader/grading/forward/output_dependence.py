"""Probes whether every call computes all parts of the output from all inputs they depend on.

The output is tiled into blocks. For each block, one input element that an element of the block depends on, by the
reference's gradient, changes in place. The outputs must change as the reference's do; a result that is cached by a
sample or a checksum of the inputs does not change. Another edit swaps two elements, which keeps sums.

The last element of each input changes too, to a large value, and those of some parameters together. A kernel that is
wrong for any element of this size, as an exponential that overflows, is not at fault here: the last elements count if
the same change elsewhere is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import are_right, check_output
from grader.grading.compare import tolerance
from grader.grading.forward.edits import Edit, edits, elsewhere
from grader.grading.forward.one_forward import add_forward
from grader.grading.forward.probes import of_mode, probe
from grader.grading.forward.race import right_again, wrong_alone
from grader.grading.messages import diagnose
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.verdict.models import Diagnosis


@probe("ignores_input_element", rank=30)
def outputs_depend_on_inputs(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Each block of the output changes when one input element that it depends on changes in place."""
    if not case.values_comparable:
        return None
    made = edits(oracle, case)
    if not made:
        return None
    result = _run_edits(candidate, case, made)
    for mode in case.modes:
        for index, edit in enumerate(made, 1):
            tapes = _tape(0, mode), _tape(index, mode)
            fault = _fault(case, edit, result, tapes)
            if fault is None or (edit.last and not _right_elsewhere(candidate, oracle, case, edit, mode)):
                continue
            seen, wrong = f"after {edit.change}, {fault}", None
            if not are_right(case, result, tapes[1]):  # unlike those before the edit
                wrong = wrong_alone(candidate, oracle, edit.case, seen)
            if wrong is None and _fault(case, edit, _run_edits(candidate, case, made), tapes) is None:
                wrong = right_again(seen, edit.case)
            return of_mode(wrong or _diagnosis(edit, fault), case, mode)
    return None


def _right_elsewhere(candidate: Candidate, oracle: Oracle, case: Case, edit: Edit, mode: bool) -> bool:
    """Whether the outputs follow other elements that get the last one's value. Raises Stopped."""
    others = elsewhere(oracle, case, edit)
    result = _run_edits(candidate, case, others)
    faults = (
        _fault(case, other, result, (_tape(0, mode), _tape(index, mode))) for index, other in enumerate(others, 1)
    )
    return bool(others) and not any(faults)


def _run_edits(candidate: Candidate, case: Case, edits: Sequence[Edit]) -> JobResult:
    """Forwards of the case and of each edit in place, in each mode. Raises Stopped."""
    turns = [case, *(edit.case for edit in edits)]
    job, last = candidate.script(case), case
    for mode in case.modes:
        for index, turn in enumerate(turns):
            tape = _tape(index, mode)
            add_forward(job, candidate, turn, tape, before=last, training=mode, reuse_addresses=True)
            last = turn
    job.step(p.Drop())
    return candidate.run(job, "forward", "forwards after one element changed")


def _tape(turn: int, training: bool) -> str:
    return f"t{turn}" if training else f"e{turn}"


def _fault(case: Case, edit: Edit, result: JobResult, tapes: tuple[str, str]) -> str | None:
    """The fault of the outputs after an edit, given the tapes before and after it."""
    for name in case.outputs:
        if not case.outputs[name].dtype.is_floating_point:
            continue
        check = check_output(edit.case, result, name, tapes[1])
        if check.status == "failed":
            return check.message or name
    values = [result.sealed.get(p.output_source(tape, edit.output)) for tape in tapes]
    before, after = (None if value is None else value.view(-1)[edit.element] for value in values)
    if before is None or after is None:
        return f"{edit.output} has another shape or dtype in one of several calls"
    if torch.equal(before, after) and _must_move(case, edit):
        return f"element {edit.element} of {edit.output} stays the same in every bit"
    return None


def _diagnosis(edit: Edit, what: str) -> Diagnosis:
    remedy = "compute each output from everything it depends on, in every call"
    return diagnose("ignores_input_element", what, where=f"after {edit.change}", remedy=remedy)


def _must_move(case: Case, edit: Edit) -> bool:
    """The reference's element moves by more than any rounding could hide."""
    expected, moved = case.outputs[edit.output], edit.case.outputs[edit.output]
    before, after = (float(output.reference64.view(-1)[edit.element]) for output in (expected, moved))
    noise = expected.rounding * (expected.rms + abs(before)) + tolerance.BASELINE_FACTOR_L2 * expected.error_max
    return abs(after - before) > noise
