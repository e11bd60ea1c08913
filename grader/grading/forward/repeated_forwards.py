"""Probes of forwards in a row: outputs follow inputs and parameters, however they lie, and last."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from grader import protocol as p
from grader.executor import JobResult, TensorSpec
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import same_bits
from grader.grading.forward.explain import explain
from grader.grading.forward.one_forward import add_forward, is_right, one_forward
from grader.grading.forward.probes import of_mode, probe
from grader.grading.forward.race import race, right_again
from grader.grading.messages import (
    VARIES,
    diagnose,
    first_line,
    fresh_tensor,
    in_backticks,
    on_another_draw,
)
from grader.grading.oracle import capabilities, other_parameters, variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.stopped import raised
from grader.verdict.models import Diagnosis
from grader.verdict.stages import TensorCheck

EDITED = "edited inputs, of which a few elements differ"
CONTIGUOUS = "call .contiguous() on each input before data_ptr()"


@dataclass(frozen=True)
class Turn:
    """One forward of several in a job."""

    key: str
    case: Case
    reuse: bool
    """Written over the tensors of the previous turn with this key."""
    change: str
    """What changed before this turn, for a message."""
    training: bool


@probe("stale_output", rank=10)
def outputs_are_current(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Outputs change with inputs and parameters, and the inputs stay as they were.

    Runs the case, with a few elements changed, at new addresses, and with another draw's values. Its parameters and
    buffers come one after another, and no other one is touched; then it comes with its own inputs, and with the case's.

    Catches results, and preprocessed weights, that are cached by address, identity, version counter or by a sample of
    the contents.
    """
    edited = variations.edited(oracle, case)
    moved = oracle.case(case.variant, training=case.training, draw=1)
    turns = list(_turns(oracle, case, edited, moved))
    result = _run_turns(candidate, turns)
    for mode, key in zip(case.modes, "ac", strict=False):
        for i in _tensor_specs(case):
            before, after = case.inputs[i], result.sealed.get(f"input:{key}:{i}")
            assert isinstance(before, torch.Tensor)
            if not case.clone_inputs and (after is None or not same_bits(before, after)):
                what = f"the forward changes its argument `{oracle.models.module.argument_name(i)}` in place"
                return of_mode(diagnose("inputs_modified", what, remedy="write into a new tensor"), case, mode)
    for index, turn in enumerate(turns):
        for name in turn.case.outputs:
            if _check(turns, index, name, result).status == "failed":
                return _cause(candidate, oracle, turns, index, name, result)
    return None


def _turns(oracle: Oracle, case: Case, edited: Case, moved: Case) -> Iterator[Turn]:
    same_model = moved.init_inputs == case.init_inputs
    mixed = other_parameters.with_parameters_of(oracle, case, moved) if same_model else case
    few = other_parameters.with_few_elements_of(oracle, case, moved) if same_model else None
    changes = other_parameters.one_after_another(oracle, case, moved) if same_model else ()
    for mode in case.modes:
        one, other = ("a", "b") if mode == case.training else ("c", "d")
        yield Turn(one, case, False, "when a forward is repeated", mode)
        yield Turn(one, edited, True, "after a few elements of the input changed in place", mode)
        if few is not None:
            yield Turn(one, few, True, "after a few elements of each parameter changed in place", mode)
        yield Turn(other, case, False, "for the same values at a new address", mode)
        for change in changes:
            yield Turn(other, change.case, True, f"after {in_backticks(change.changed)} alone changed in place", mode)
        if same_model:
            yield Turn(other, moved, True, "after inputs and parameters changed in place", mode)
            yield Turn(other, mixed, True, "when the inputs of an earlier call come with other parameters", mode)


def _check(turns: Sequence[Turn], index: int, name: str, result: JobResult) -> TensorCheck:
    return check_output(turns[index].case, result, name, f"t{index}")


def _cause(
    candidate: Candidate,
    oracle: Oracle,
    turns: Sequence[Turn],
    index: int,
    name: str,
    result: JobResult,
) -> Diagnosis:
    """The cause of a turn's wrong output: a race, a wrong forward, or a result of an earlier call."""
    turn, case, edited = turns[index], turns[0].case, turns[1].case
    check, sealed = _check(turns, index, name, result), result.sealed.get(p.output_source(f"t{index}", name))
    what = check.message or f"{name} is wrong"
    if turn.case is case and (sealed is None or not tolerance.passes(edited.outputs[name], sealed)):
        # Where other parameters came before, right forwards alone say nothing.
        other_state = index > 0 and turns[index - 1].case.state is not case.state
        raced = race(candidate, case, f"{turn.change}, {what}", some_wrong=other_state)
        if raced is not None:
            return raced
    if _check(turns, index, name, _run_turns(candidate, turns)).status != "failed":
        return of_mode(right_again(f"{turn.change}, {what}", turn.case), case, turn.training)
    if turn.case is not case and sealed is not None and not _is_stale(oracle, turns[:index], turn, name, sealed):
        # Where the first draw is wrong now too, calls before it are at fault and no value of the other draw.
        if not _is_right_at_first(candidate, turn.case, name) and _is_right_at_first(candidate, case, name):
            wrong = explain(candidate, oracle, turn.case, check, sealed)
            wrong = on_another_draw(wrong, EDITED) if turn.case is edited else on_another_draw(wrong)
            return of_mode(wrong, case, turn.training)
        raced = race(candidate, turn.case, f"{turn.change}, {what}", some_wrong=True)
        if raced is not None:
            return raced
    remedy = "compute the output from its inputs in every call"
    is_stale = _is_stale(oracle, turns[:index], turn, name, sealed)
    if not is_stale and _wrong_after_equal_calls(candidate, oracle, turns, index, name):
        what += f"; call {index + 1} of {index + 1} equal ones with another draw is wrong too"
        return of_mode(diagnose("output_wrong", what, where=turn.change, remedy=VARIES), case, turn.training)
    return of_mode(diagnose("stale_output", what, where=turn.change, remedy=remedy), case, turn.training)


def _run_turns(candidate: Candidate, turns: Sequence[Turn]) -> JobResult:
    """The outputs of these forwards in a row. Raises Stopped."""
    case = turns[0].case
    job, last = candidate.script(case), case
    for index, turn in enumerate(turns):
        add_forward(
            job,
            candidate,
            turn.case,
            f"t{index}",
            before=last,
            updated=case.updated_buffers,
            key=turn.key,
            training=turn.training,
            reuse_addresses=turn.reuse,
        )
        last = turn.case
        if turn.case is case and turn.key in ("a", "c"):
            job.export({f"input:{turn.key}:{i}": spec for i, spec in _tensor_specs(case).items()})
    return candidate.run(job, "forward", "repeated forwards")


def _is_stale(oracle: Oracle, earlier: Sequence[Turn], turn: Turn, name: str, sealed: torch.Tensor | None) -> bool:
    """Whether an output is wrong for its turn, and right for inputs or parameters of an earlier one."""
    if sealed is None or not earlier:
        return False
    case, due = earlier[0].case, turn.case.outputs[name].reference64
    mixed = [
        variations.outputs_of(oracle, replace(one, inputs=other.inputs, outputs=turn.case.outputs))
        for one, other in ((case, turn.case), (turn.case, case))
        if turn.case.state is not case.state
    ]
    outputs = [one[name] for one in (*mixed, *(turn.case.outputs for turn in earlier))]
    # Without parameters, or without inputs, some are what is due.
    others = [output for output in outputs if not tolerance.passes(output, due.to(output.dtype))]
    return any(tolerance.passes(output, sealed) for output in others)


def _wrong_after_equal_calls(
    candidate: Candidate, oracle: Oracle, turns: Sequence[Turn], index: int, name: str
) -> bool:
    """Whether this output is wrong too in a turn after others with the same values: nothing of those can be stale.

    The values are those of another draw, of which the submission keeps nothing. Raises Stopped.
    """
    candidate.forget(everything=True)
    case = oracle.case(turns[0].case.variant, training=turns[0].case.training, draw=2)
    equal = [replace(turn, case=case) for turn in turns[: index + 1]]
    return _check(equal, index, name, _run_turns(candidate, equal)).status == "failed"


def _is_right_at_first(candidate: Candidate, case: Case, name: str) -> bool:
    """Whether the output is right in the first forward of a newly constructed model. Raises Stopped."""
    candidate.forget(everything=True)
    return is_right(candidate, case, name, "forward of a newly constructed model")


def _tensor_specs(case: Case) -> dict[int, TensorSpec]:
    """Shape and dtype of each tensor argument, by position."""
    return {i: TensorSpec.like(value) for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}


@probe("output_overwritten", rank=20)
def outputs_are_kept(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """The next forwards leave a returned output as it was, if the reference's do."""
    if not case.values_comparable or not capabilities.keeps_outputs(oracle, case):
        return None
    job = candidate.script(case)
    capabilities.add_forwards(job, oracle, case)
    result = candidate.attempt(job, "forward", "keeping one forward's output during the next")
    if result.failure is not None:
        if job.failed_in_forward(result.failure):
            raise raised(result.failure, "forward", "some forwards of one model")
        what = f"after the next forward, the output of the previous one raises {first_line(result.failure)}"
        return diagnose("output_overwritten", what, remedy=fresh_tensor("forward", candidate.captures_graphs))
    for training, name in itertools.product(case.modes, case.outputs):
        if check_output(case, result, name, capabilities.tape_of(training)).status == "failed":
            what = f"the next forward overwrites the {name} that the previous one returned"
            remedy = fresh_tensor("forward", candidate.captures_graphs)
            return of_mode(diagnose("output_overwritten", what, remedy=remedy), case, training)
    return None


@probe("assumes_contiguous_input", rank=40)
def strided_inputs_work(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Strided inputs, with NaN between elements, give the same outputs, if the reference gives the same.

    Information only: the inputs that get_inputs makes are the contract, and a kernel may rely on their layout.
    """
    if case.clone_inputs or not case.values_comparable or not capabilities.takes_strided(oracle, case):
        return None
    strided = one_forward(candidate, case, layout="strided")
    result = candidate.attempt(strided, "forward", "forward of inputs that are not contiguous")
    if result.failure is not None:
        what = f"for inputs that are not contiguous, the forward raises {first_line(result.failure)}"
        return diagnose("assumes_contiguous_input", what, remedy=CONTIGUOUS)
    for name in case.outputs:
        check = check_output(case, result, name)
        if check.status == "failed":
            what = f"right for contiguous inputs, wrong for strided inputs: {check.message}"
            return diagnose("assumes_contiguous_input", what, remedy=CONTIGUOUS)
    return None
