"""Probes whether outputs change with inputs and parameters, wherever and however these lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from grader import protocol as p
from grader.executor import JobResult, TensorSpec
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.compare import tolerance
from grader.grading.compare.outputs import check_output, same_bits
from grader.grading.forward.explain import explain
from grader.grading.forward.probes import of_mode, probe
from grader.grading.forward.repeats import race, right_again
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose, first_line, on_another_draw
from grader.verdict.models import Diagnosis

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


@probe(
    "stale_output",
    question="Outputs change with inputs and parameters, and the inputs stay as they were.",
    rank=10,
)
def outputs_are_current(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Runs the case, with a few elements changed, at new addresses, and with another draw's values.

    The other draw comes with its own inputs, then with the case's.

    Catches results, and preprocessed weights, that are cached by address, identity, version counter or by a sample of
    the contents.
    """
    edited = questions.edited(oracle, case)
    moved = oracle.case(case.variant, training=case.training, draw=1)
    mixed = questions.with_parameters_of(oracle, case, moved) if moved.init_inputs == case.init_inputs else case
    turns: list[Turn] = []
    for mode in case.modes:
        one, other = ("a", "b") if mode == case.training else ("c", "d")
        turns += [
            Turn(one, case, False, "when a forward is repeated", mode),
            Turn(one, edited, True, "after a few elements of the input changed in place", mode),
            Turn(other, case, False, "for the same values at a new address", mode),
        ]
        if moved.init_inputs == case.init_inputs:
            again = "when the inputs of an earlier call come with other parameters"
            turns += [
                Turn(other, moved, True, "after inputs and parameters changed in place", mode),
                Turn(other, mixed, True, again, mode),
            ]
    result = _run(candidate, turns)
    for mode, key in zip(case.modes, "ac", strict=False):
        for i in _tensor_specs(case):
            before, after = case.inputs[i], result.sealed.get(f"input:{key}:{i}")
            assert isinstance(before, torch.Tensor)
            if not case.clone_inputs and (after is None or not same_bits(before, after)):
                what = f"the forward changes its argument {i + 1} in place"
                return of_mode(diagnose("inputs_modified", what, remedy="write into a new tensor"), case, mode)
    for index, turn in enumerate(turns):
        for name in turn.case.outputs:
            check = check_output(turn.case, result, f"output:t{index}:{name}", name)
            if check.status == "failed":
                what = check.message or f"{name} is wrong"
                sealed = result.sealed.get(f"output:t{index}:{name}")
                if turn.case is case and not _passes(edited, name, sealed):
                    raced = race(candidate, case, f"{turn.change}, {what}")
                    if raced is not None:
                        return raced
                if check_output(turn.case, _run(candidate, turns), f"output:t{index}:{name}", name).status != "failed":
                    return of_mode(right_again(f"{turn.change}, {what}", turn.case), case, turn.training)
                if turn.case is moved and sealed is not None:
                    if not _is_stale(candidate, oracle, turns[:index], moved, name, sealed):
                        wrong = explain(candidate, oracle, moved, check, sealed)
                        return of_mode(on_another_draw(wrong), case, turn.training)
                    raced = race(candidate, moved, f"{turn.change}, {what}", some_wrong=True)
                    if raced is not None:
                        return raced
                remedy = "compute the output from its inputs in every call"
                stale = diagnose("stale_output", what, where=turn.change, remedy=remedy)
                return of_mode(stale, case, turn.training)
    return None


def _run(candidate: Candidate, turns: Sequence[Turn]) -> JobResult:
    """The outputs of these forwards in a row. Raises Stopped."""
    case = turns[0].case
    job, last = candidate.script(case), case
    for index, turn in enumerate(turns):
        if turn.case.state is not last.state:
            candidate.reset(job, turn.case)
        else:
            candidate.reset_buffers(job, turn.case)
        last = turn.case
        job.put_inputs(turn.key, turn.case.inputs, reuse_addresses=turn.reuse)
        job.step(p.Forward(model=MODEL, inputs=turn.key, tape=f"t{index}", training=turn.training))
        job.export(exports("output", f"t{index}", output_specs(turn.case)))
        if turn.case is case and turn.key in ("a", "c"):
            job.export({f"input:{turn.key}:{i}": spec for i, spec in _tensor_specs(case).items()})
    return candidate.run(job, "forward", "repeated forwards")


def _passes(case: Case, name: str, sealed: torch.Tensor | None) -> bool:
    return sealed is not None and tolerance.check(case.outputs[name], sealed).status == "passed"


def _is_stale(
    candidate: Candidate, oracle: Oracle, turns: Sequence[Turn], moved: Case, name: str, sealed: torch.Tensor
) -> bool:
    """Whether an output behind these turns would be right for their values, or as a model's first output."""
    case, due = turns[0].case, moved.outputs[name].reference64
    mixed = [
        questions.outputs_for(oracle, replace(one, outputs=moved.outputs), other.inputs)
        for one, other in ((case, moved), (moved, case))
    ]
    earlier = [outputs[name] for outputs in (*mixed, *(turn.case.outputs for turn in turns))]
    # Without parameters, or without inputs, some are what is due.
    others = [of for of in earlier if tolerance.check(of, due.to(of.dtype)).status == "failed"]
    if any(tolerance.check(of, sealed).status == "passed" for of in others):
        return True
    candidate.forget(everything=True)
    job = candidate.script(moved)
    job.put_inputs("a", moved.inputs)
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=moved.training))
    job.export(exports("output", "a", output_specs(moved)))
    job.step(p.Drop())
    result = candidate.run(job, "forward", "forward of a newly constructed model")
    return check_output(moved, result, f"output:a:{name}", name).status == "passed"


def _tensor_specs(case: Case) -> dict[int, TensorSpec]:
    """What each tensor argument is, by position."""
    tensors = {i: value for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    return {i: TensorSpec(tuple(value.shape), value.dtype) for i, value in tensors.items()}


@probe(
    "assumes_contiguous_input",
    question="Strided inputs give the same outputs, if they do so for the reference. Information only.",
    rank=40,
)
def strided_inputs_work(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """The same inputs with NaN between their elements.

    Information only: the inputs that get_inputs makes are the contract, and a kernel may rely on their layout.
    """
    if case.clone_inputs or not case.values_comparable or not questions.takes_strided(oracle, case):
        return None
    job = candidate.script(case)
    job.put_inputs("a", case.inputs, layout="strided")
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
    job.export(exports("output", "a", output_specs(case)))
    job.step(p.Drop())
    result = candidate.attempt(job, "forward", "forward of inputs that are not contiguous")
    if result.failure is not None:
        what = f"for inputs that are not contiguous, the forward raises {first_line(result.failure)}"
        return diagnose("assumes_contiguous_input", what, remedy=CONTIGUOUS)
    for name in case.outputs:
        check = check_output(case, result, f"output:a:{name}", name)
        if check.status == "failed":
            what = f"right for contiguous inputs, wrong for strided inputs: {check.message}"
            return diagnose("assumes_contiguous_input", what, remedy=CONTIGUOUS)
    return None
