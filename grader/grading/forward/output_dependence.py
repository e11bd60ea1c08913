"""Probes whether every call computes all parts of the output from all inputs they depend on.

The output is tiled into blocks. For each block, one input element that an element of the block depends on, by the
reference's gradient, changes in place. The outputs must change as the reference's do; a result that is cached by a
sample or a checksum of the inputs does not change. The last edit swaps two elements, which keeps sums.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.executor import JobResult
from grader.grading.candidate import Candidate
from grader.grading.compare import blocks, tolerance
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.compare.expected import EPSILON
from grader.grading.compare.outputs import are_right, check_output
from grader.grading.forward.probes import as_timed, of_mode, probe
from grader.grading.forward.race import right_again, wrong_alone
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case, export_outputs, nbytes_of
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.oracle import Oracle, remembered
from grader.grading.oracle.values import is_float, values_of
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis

BLOCKS = 8
"""Blocks of the output, and so edits: a cheat that omits an eighth of the output is found each time. A slow reference
answers for a quarter of them."""
Structures = Mapping[int, Structure]
"""The structure of each tensor argument, by position."""
_CHOICE = random.SystemRandom()


@dataclass(frozen=True)
class Edit:
    """One changed input, with the reference's outputs."""

    case: Case
    change: str
    """What changed, for a message."""
    output: str
    element: int
    """Position in that output, in row-major order: an element that depends on what changed."""


@probe("ignores_input_element", rank=30)
def outputs_depend_on_inputs(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Each block of the output changes when one input element that it depends on changes in place."""
    if not case.values_comparable:
        return None
    edits = _edits(oracle, case)
    if not edits:
        return None
    result = _run(candidate, case, edits)
    for mode in case.modes:
        for index, edit in enumerate(edits, 1):
            tapes = _tape(0, mode), _tape(index, mode)
            fault = _fault(case, edit, result, tapes)
            if fault is None:
                continue
            seen, wrong = f"after {edit.change}, {fault}", None
            if not are_right(case, result, tapes[1]):  # unlike those before the edit
                wrong = wrong_alone(candidate, oracle, edit.case, seen)
            if wrong is None and _fault(case, edit, _run(candidate, case, edits), tapes) is None:
                wrong = right_again(seen, edit.case)
            return of_mode(wrong or _diagnosis(edit, fault), case, mode)
    return None


def _run(candidate: Candidate, case: Case, edits: Sequence[Edit]) -> JobResult:
    """Forwards of the case and of each edit in place, in each mode. Raises Stopped."""
    turns = [case, *(edit.case for edit in edits)]
    job = candidate.script(case)
    for mode in case.modes:
        for index, turn in enumerate(turns):
            candidate.reset_buffers(job, case)
            job.put_inputs("a", turn.inputs, reuse_addresses=True)
            job.step(as_timed(candidate, turn, "a", _tape(index, mode), training=mode))
            export_outputs(job, case, _tape(index, mode))
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
    before, after = (result.sealed[f"output:{tape}:{edit.output}"].view(-1)[edit.element] for tape in tapes)
    if torch.equal(before, after) and _must_move(case, edit):
        return f"element {edit.element} of {edit.output} stays the same in every bit"
    return None


def _diagnosis(edit: Edit, what: str) -> Diagnosis:
    remedy = "compute each output from everything it depends on, in every call"
    return diagnose("ignores_input_element", what, where=f"after {edit.change}", remedy=remedy)


def _must_move(case: Case, edit: Edit) -> bool:
    """The reference's element moves by more than any rounding could hide."""
    expected, moved = case.outputs[edit.output], edit.case.outputs[edit.output]
    before, after = (float(of.reference64.view(-1)[edit.element]) for of in (expected, moved))
    rms = expected.norm / math.sqrt(max(expected.reference64.numel(), 1))
    units = tolerance.ROUNDING_UNITS + math.sqrt(expected.reduction_length)
    noise = units * EPSILON * (rms + abs(before)) + tolerance.BASELINE_FACTOR_L2 * expected.error_max
    return abs(after - before) > noise


@remembered
def _edits(oracle: Oracle, case: Case) -> tuple[Edit, ...]:
    """Edits to values far from an input's own, unless the reference refuses them, as it does for a probability."""
    for far in (True, False):
        with contextlib.suppress(ProblemError):
            return _made(oracle, case, far=far)
    return ()


def _made(oracle: Oracle, case: Case, *, far: bool) -> tuple[Edit, ...]:
    """The edits; empty if there is no input to change. Raises ProblemError if the reference refuses the changes."""
    floats = [name for name, of in case.outputs.items() if of.dtype.is_floating_point and of.reference64.numel()]
    structures = questions.structures(oracle, case)
    if not floats or not any(of.count > 1 for of in structures.values()):
        return ()
    nbytes = nbytes_of((*case.inputs, *(of.reference64 for of in case.outputs.values())))
    output = _CHOICE.choice(floats)
    most = BLOCKS // 4 if oracle.is_slow(case) else BLOCKS
    blocks = min(most, max(1, CHECK_BYTES // nbytes), case.outputs[output].reference64.numel())
    elements = list(_one_in_each(case.outputs[output].reference64.numel(), blocks))
    gradients = questions.element_gradients(oracle, case, output, elements)
    made = [
        (_poke(case, structures, gradient, output, far=far), element)
        for element, gradient in zip(elements, gradients, strict=True)
    ]
    made.append((_swap(case, structures), elements[-1]))
    expected = questions.outputs_for_each(oracle, case, [inputs for (inputs, _), _ in made])
    return tuple(
        Edit(replace(case, inputs=inputs, outputs=outputs), change, output, element)
        for ((inputs, change), element), outputs in zip(made, expected, strict=True)
    )


def _one_in_each(count: int, blocks: int) -> Iterator[int]:
    for block in range(blocks):
        yield _CHOICE.randrange(block * count // blocks, (block + 1) * count // blocks)


def _poke(
    case: Case, structures: Structures, gradients: dict[int, torch.Tensor], output: str, *, far: bool
) -> tuple[tuple[object, ...], str]:
    """Inputs with one element moved, `far` enough to move the output by about its own size unless that is too far."""
    slopes = {i: structures[i].slopes(gradient) for i, gradient in gradients.items()}
    reached = [i for i, slope in slopes.items() if bool(slope.any())]
    if not reached:
        return _swap(case, structures)
    index = _CHOICE.choice(reached)
    value, slope = case.inputs[index], slopes[index]
    assert isinstance(value, torch.Tensor)
    nonzero = slope.nonzero().view(-1)
    where = int(nonzero[_CHOICE.randrange(nonzero.numel())])
    old = float(value.reshape(-1)[where])
    size = case.outputs[output].norm / math.sqrt(case.outputs[output].reference64.numel())
    most = 8 * blocks.norm(value) / math.sqrt(value.numel()) + 1
    step = min(max(2 * size / abs(float(slope[where])), abs(old) + 1), most)
    structure = structures[index]
    # Whole numbers may be codes or labels: values between them mean nothing.
    usual = not far or structure.sums_alike or values_of(value).whole
    new = structure.usual(value, where) if usual else {where: structure.moved(old, _CHOICE.choice((-step, step)))}
    what = f"element {list(blocks.unravel(where, value.shape))} of `{_argument(case, index)}`"
    moved = "and what goes with it changed" if structure.symmetric or len(new) > 1 else "alone changed"
    return _with(case, index, structure.changed(value, new)), f"{what} {moved}"


def _swap(case: Case, structures: Structures) -> tuple[tuple[object, ...], str]:
    """Inputs with two elements of one of them swapped."""
    tensors = [i for i, of in structures.items() if of.count > 1]
    index = _CHOICE.choice([i for i in tensors if is_float(case.inputs[i])] or tensors)
    value, structure = case.inputs[index], structures[index]
    assert isinstance(value, torch.Tensor)
    one, other = (structure.place(ordinal) for ordinal in _CHOICE.sample(range(structure.count), 2))
    flat = value.reshape(-1)
    new = structure.usual(value, one) if structure.sums_alike else {one: flat[other].item(), other: flat[one].item()}
    return _with(
        case, index, structure.changed(value, new)
    ), f"two elements of `{_argument(case, index)}` alone were swapped"


def _with(case: Case, index: int, value: torch.Tensor) -> tuple[object, ...]:
    return (*case.inputs[:index], value, *case.inputs[index + 1 :])


def _argument(case: Case, index: int) -> str:
    return case.operand_names.get(f"input[{index}]", f"input[{index}]")
