"""Is every part of the output computed, from every element that it hangs on, in every call?

The output is tiled into blocks. For each, one element of one input that an element of the block hangs on, by the
reference's gradient, changes in place, and the outputs must change as the reference's do. A result that is remembered
by a sample or a checksum of the inputs stays as it was; the last edit swaps two elements, which leaves sums alone.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.compare import blocks, tolerance
from grader.grading.compare.outputs import check_output
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import is_float, whole_numbers
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis

BLOCKS = 8
MAX_BYTES = 256 << 20
"""Of all edits together: fewer blocks where the tensors are large."""
Structures = Mapping[int, Structure]
"""By the argument's position."""
_CHOICE = random.SystemRandom()


@dataclass(frozen=True)
class Edit:
    """One input changed, and what the reference makes of it."""

    case: Case
    said: str
    output: str
    element: int
    """Of that output, in row-major order: it hangs on what changed."""


def judge_load_bearing(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Each edit, at the addresses of the inputs before it."""
    if not case.values_comparable:
        return None
    edits = oracle.remember(("edits", case.seed), lambda: _edits(oracle, case))
    if not edits:
        return None
    turns = [case, *(edit.case for edit in edits)]
    script = candidate.script(case)
    for index, turn in enumerate(turns):
        candidate.reset_buffers(script, case)
        script.put_inputs("a", turn.inputs, reuse_addresses=True)
        script.step(p.Forward(model=MODEL, inputs="a", tape=f"t{index}", training=case.training))
        script.export(exports("output", f"t{index}", output_specs(case)))
    script.step(p.Drop())
    finding = candidate.run(script, "forward", "forwards after one element changed")
    for index, edit in enumerate(edits, 1):
        for name in case.outputs:
            if not case.outputs[name].dtype.is_floating_point:
                continue
            check = check_output(edit.case, finding, f"output:t{index}:{name}", name)
            if check.status == "failed":
                return _diagnosis(edit, check.message or name)
        before, after = (finding.sealed[f"output:t{turn}:{edit.output}"].view(-1)[edit.element] for turn in (0, index))
        if torch.equal(before, after) and _must_move(case, edit):
            return _diagnosis(edit, f"element {edit.element} of {edit.output} stays the same in every bit")
    return None


def _diagnosis(edit: Edit, what: str) -> Diagnosis:
    message = f"after {edit.said}, {what}: compute each output from all that it hangs on, in every call"
    return diagnose("ignores_input_element", message)


def _must_move(case: Case, edit: Edit) -> bool:
    """The reference's element moves by more than any rounding could hide."""
    expected, moved = case.outputs[edit.output], edit.case.outputs[edit.output]
    before, after = (float(of.reference64.view(-1)[edit.element]) for of in (expected, moved))
    rms = expected.norm / math.sqrt(max(expected.reference64.numel(), 1))
    units = tolerance.ROUNDING_UNITS + math.sqrt(expected.reduction_length)
    noise = units * tolerance.EPSILON * (rms + abs(before)) + tolerance.YARDSTICK_FACTOR_L2 * expected.error_max
    return abs(after - before) > noise


def _edits(oracle: Oracle, case: Case) -> tuple[Edit, ...]:
    """By values far from an input's own, unless the reference refuses them, as of what is to be a probability."""
    for far in (True, False):
        with contextlib.suppress(ProblemError):
            return _made(oracle, case, far=far)
    return ()


def _made(oracle: Oracle, case: Case, *, far: bool) -> tuple[Edit, ...]:
    """Empty where there is no input to change. Raises ProblemError where the reference does not take the changes."""
    floats = [name for name, of in case.outputs.items() if of.dtype.is_floating_point and of.reference64.numel()]
    structures = questions.structures(oracle, case)
    if not floats or not any(of.count > 1 for of in structures.values()):
        return ()
    nbytes = sum(of.reference64.nbytes for of in case.outputs.values())
    nbytes += sum(value.nbytes for value in case.inputs if isinstance(value, torch.Tensor))
    output = _CHOICE.choice(floats)
    blocks = min(BLOCKS, max(1, MAX_BYTES // nbytes), case.outputs[output].reference64.numel())
    elements = list(_one_in_each(case.outputs[output].reference64.numel(), blocks))
    gradients = questions.element_gradients(oracle, case, output, elements)
    made = [
        (_poke(case, structures, gradient, output, element, far=far), element)
        for element, gradient in zip(elements, gradients, strict=True)
    ]
    made.append((_swap(case, structures), elements[-1]))
    return tuple(
        Edit(replace(case, inputs=inputs, outputs=questions.outputs_for(oracle, case, inputs)), said, output, element)
        for (inputs, said), element in made
    )


def _one_in_each(count: int, blocks: int) -> Iterator[int]:
    for block in range(blocks):
        yield _CHOICE.randrange(block * count // blocks, (block + 1) * count // blocks)


def _poke(
    case: Case, structures: Structures, gradients: dict[int, torch.Tensor], output: str, element: int, *, far: bool
) -> tuple[tuple[object, ...], str]:
    """One element moves: `far` enough that the output does by about its own size, where that is not too far."""
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
    # Whole numbers may be codes or labels, of which there are no others.
    usual = not far or structure.sums_alike or whole_numbers(value)
    new = structure.usual(value, where) if usual else {where: old + _CHOICE.choice((-step, step))}
    what = f"element {list(tolerance.unravel(where, value.shape))} of `{_argument(case, index)}`"
    moved = "changed, and what goes with it" if structure.symmetric or len(new) > 1 else "alone changed"
    return _with(case, index, structure.changed(value, new)), f"{what} {moved}"


def _swap(case: Case, structures: Structures) -> tuple[tuple[object, ...], str]:
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
