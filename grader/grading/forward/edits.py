"""Inputs of which one element changed, or two were swapped, with the reference's outputs.

The last element of each input is always among them: a loop over vectors that ends too early leaves it out, and in a
long sum its share is less than rounding. It becomes so large that it counts. So do the last elements of parameters,
together: a maximum over channels that leaves out the last one is right while that channel is never the largest.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from grader.errors import ProblemError
from grader.grading import chance
from grader.grading.compare import blocks, tolerance
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.compare.expected import Expected
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case, input_index, is_input, nbytes_of, smallest
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.other_inputs import answers_well
from grader.grading.oracle.remembered import derived
from grader.grading.oracle.values import is_float, values_of

BLOCKS = 8
"""Blocks of the output, and so edits: a cheat that omits an eighth of the output is found each time. A slow reference
answers for a quarter of them."""
Structures = Mapping[int, Structure]
"""The structure of each tensor argument, by position."""


@dataclass(frozen=True)
class Edit:
    """One changed input, with the reference's outputs."""

    case: Case
    change: str
    """What changed, for a message."""
    output: str
    element: int
    """Position in that output, in row-major order: an element that depends on what changed."""
    last: Mapping[str, float] = field(default_factory=dict)
    """The operands whose last elements alone changed, and their new values."""


@derived
def edits(oracle: Oracle, case: Case) -> tuple[Edit, ...]:
    """Edits to values far from an input's own, or to its usual ones where the reference refuses those."""
    floats = _float_outputs(case)
    structures = variations.structures(oracle, case)
    if not floats or not any(structure.count > 1 for structure in structures.values()):
        return ()
    output = chance.draw.choice(floats)
    found: tuple[Edit, ...] = ()
    for far in (True, False):
        with contextlib.suppress(ProblemError):
            found = _make_edits(oracle, case, structures, output, far=far)
            break
    inputs, parameters = _inputs_to_edit(oracle, case, structures), _parameters_to_edit(oracle, case)
    groups = [{name: structure} for name, structure in inputs.items()] + ([parameters] if parameters else [])
    return (*found, *(edit for group in groups for edit in _of_last_elements(oracle, case, group, output)))


def elsewhere(oracle: Oracle, case: Case, edit: Edit) -> tuple[Edit, ...]:
    """Edits that give other elements of the same operands the values that the last ones got."""
    found = list[Edit]()
    structures = {name: _structure(oracle, case, name) for name in edit.last}
    for _ in range(BLOCKS // 2):
        other = case
        for name, new in edit.last.items():
            structure = structures[name]
            place = structure.place(chance.draw.randrange(structure.count - 1))
            other = other.with_operand(name, structure.changed(case.operand(name), {place: new}))
        answered = _answered(oracle, case, other)
        if answered is not None:
            found.append(replace(edit, case=answered))
    return tuple(found)


def _structure(oracle: Oracle, case: Case, name: str) -> Structure:
    """That of an operand. Of a parameter, its range has the signs that the reference was seen to take."""
    if is_input(name):
        return variations.structures(oracle, case)[input_index(name)]
    value = case.state[name]
    signed = oracle.traits(case).limits.get(name, "signed") == "signed"
    return Structure([value, -value] if signed else [value])


def _inputs_to_edit(oracle: Oracle, case: Case, structures: Structures) -> dict[str, Structure]:
    """The floating-point inputs, or some of them; one that is the same in all draws may be a constant of the kernel."""
    of_floats = {f"input[{i}]": structure for i, structure in structures.items() if is_float(case.inputs[i])}
    found = {name: structure for name, structure in of_floats.items() if structure.count > 1 and not structure.fixed}
    return {name: found[name] for name in chance.draw.sample(list(found), min(len(found), _room(oracle, case)))}


def _parameters_to_edit(oracle: Oracle, case: Case) -> dict[str, Structure]:
    """Up to BLOCKS of the learned parameters with several elements, the smallest ones if a copy of all has no room."""
    learned = oracle.traits(case).learned
    several = {
        name: tensor
        for name, tensor in case.state.items()
        if name in learned and is_float(tensor) and tensor.numel() > 1
    }
    fitting = list(smallest(several, CHECK_BYTES // 2))
    found = {name: _structure(oracle, case, name) for name in chance.draw.sample(fitting, min(len(fitting), BLOCKS))}
    return {name: structure for name, structure in found.items() if structure.count > 1}


def _float_outputs(case: Case) -> list[str]:
    return [
        name
        for name, expected in case.outputs.items()
        if expected.dtype.is_floating_point and expected.reference64.numel()
    ]


def _room(oracle: Oracle, case: Case) -> int:
    """The number of edits that a large case and a slow reference leave room for."""
    nbytes = nbytes_of((*case.inputs, *(expected.reference64 for expected in case.outputs.values())))
    return min(BLOCKS // 4 if oracle.is_slow(case) else BLOCKS, max(1, CHECK_BYTES // nbytes))


def _make_edits(oracle: Oracle, case: Case, structures: Structures, output: str, *, far: bool) -> tuple[Edit, ...]:
    """An edit for each block of the output, and a swap. Raises ProblemError if the reference refuses the changes."""
    count = case.outputs[output].reference64.numel()
    elements = list(_one_in_each(count, min(_room(oracle, case), count)))
    gradients = variations.element_gradients(oracle, case, output, elements)
    made = [
        (_poke(case, structures, gradient, output, far=far), element)
        for element, gradient in zip(elements, gradients, strict=True)
    ]
    made.append((_swap(case, structures), elements[-1]))
    cases = [replace(case, inputs=inputs) for (inputs, _), _ in made]
    expected = variations.outputs_of_each(oracle, cases)
    return tuple(
        Edit(replace(other, outputs=outputs), change, output, element)
        for other, ((_, change), element), outputs in zip(cases, made, expected, strict=True)
    )


def _of_last_elements(oracle: Oracle, case: Case, structures: Mapping[str, Structure], output: str) -> Iterator[Edit]:
    """An edit of the last elements of these operands, to the first values that show in the outputs.

    As large as the norm of the operand, one adds to a sum of squares what all others do, and to a sum of n terms of one
    sign a share of 1 / sqrt(n).
    """
    for last in _values_of_last(oracle, case, structures):
        other = case
        for name, new in last.items():
            structure = structures[name]
            changed = structure.changed(case.operand(name), {structure.place(structure.count - 1): new})
            other = other.with_operand(name, changed)
        answered = _answered(oracle, case, other)
        if answered is not None and _shows(case, answered.outputs):
            moved = answered.outputs[output].reference64 - case.outputs[output].reference64
            yield Edit(answered, _change(case, last), output, int(moved.abs().argmax()), last)
            return


def _change(case: Case, last: Mapping[str, float]) -> str:
    if len(last) == 1:
        return f"the last element of {case.shown(last)} alone changed to {next(iter(last.values())):.4g}"
    return f"the last elements of {case.shown(last)} alone changed"


def _values_of_last(oracle: Oracle, case: Case, structures: Mapping[str, Structure]) -> Iterator[Mapping[str, float]]:
    """Yields new values for the last elements, the farthest from the old ones first.

    None for elements that cannot change alone.
    """
    signs = {name: chance.draw.choice((-1, 1)) for name in structures}
    tried = list[Mapping[str, float]]()
    for far, sign in itertools.product((False,) if oracle.traits(case).asserts else (True, False), (1, -1)):
        values = {
            name: _value_of_last(structure, case.operand(name), sign * signs[name], far=far)
            for name, structure in structures.items()
        }
        found = {name: new for name, new in values.items() if new is not None}
        if found and found not in tried:
            tried.append(found)
            yield found


def _value_of_last(structure: Structure, value: torch.Tensor, sign: int, *, far: bool) -> float | None:
    """A new value for the last element; None where it cannot change alone."""
    if structure.sums_alike or values_of(value).whole:
        return None
    old = float(value.reshape(-1)[structure.place(structure.count - 1)])
    sign = 1 if structure.low == 0 else -1 if structure.high == 0 else sign
    return old + sign * (blocks.norm(value) + 1) if far else structure.moved(old, sign * _usual_step(value))


def _usual_step(value: torch.Tensor) -> float:
    """A step of 8 times the tensor's RMS, plus 1, to a value that its kernel should handle."""
    return 8 * blocks.norm(value) / math.sqrt(value.numel()) + 1


def _shows(case: Case, outputs: Mapping[str, Expected]) -> bool:
    """Whether the outputs from before the edit are wrong after it, wherever the reference is smooth."""
    before = {name: case.outputs[name].reference64.to(outputs[name].dtype) for name in _float_outputs(case)}
    return not all(tolerance.passes(replace(outputs[name], spread=None), value) for name, value in before.items())


def _answered(oracle: Oracle, case: Case, other: Case) -> Case | None:
    """The other case with the reference's outputs; None if it refuses them, or float32 does not suffice for it."""
    try:
        outputs = variations.outputs_of(oracle, other)
    except ProblemError:
        return None
    good = all(answers_well(outputs[name], case.outputs[name]) for name in _float_outputs(case))
    return replace(other, outputs=outputs) if good else None


def _one_in_each(count: int, blocks: int) -> Iterator[int]:
    for block in range(blocks):
        yield chance.draw.randrange(block * count // blocks, (block + 1) * count // blocks)


def _poke(
    case: Case, structures: Structures, gradients: dict[int, torch.Tensor], output: str, *, far: bool
) -> tuple[tuple[object, ...], str]:
    """Inputs with one element moved, `far` enough to move the output by about its own size unless that is too far."""
    slopes = {i: structures[i].slopes(gradient) for i, gradient in gradients.items()}
    reached = [i for i, slope in slopes.items() if bool(slope.any())]
    if not reached:
        return _swap(case, structures)
    index = chance.draw.choice(reached)
    value, slope = case.inputs[index], slopes[index]
    assert isinstance(value, torch.Tensor)
    nonzero = slope.nonzero().view(-1)
    where = int(nonzero[chance.draw.randrange(nonzero.numel())])
    old = float(value.reshape(-1)[where])
    step = min(max(2 * case.outputs[output].rms / abs(float(slope[where])), abs(old) + 1), _usual_step(value))
    structure = structures[index]
    # Whole numbers may be codes or labels: values between them mean nothing.
    usual = not far or structure.sums_alike or values_of(value).whole
    new = structure.usual(value, where) if usual else {where: structure.moved(old, chance.draw.choice((-step, step)))}
    what = f"element {list(blocks.unravel(where, value.shape))} of `{_argument(case, index)}`"
    moved = "and what goes with it changed" if structure.symmetric or len(new) > 1 else "alone changed"
    return _with(case, index, structure.changed(value, new)), f"{what} {moved}"


def _swap(case: Case, structures: Structures) -> tuple[tuple[object, ...], str]:
    """Inputs with two elements of one of them swapped."""
    tensors = [i for i, structure in structures.items() if structure.count > 1]
    index = chance.draw.choice([i for i in tensors if is_float(case.inputs[i])] or tensors)
    value, structure = case.inputs[index], structures[index]
    assert isinstance(value, torch.Tensor)
    one, other = (structure.place(ordinal) for ordinal in chance.draw.sample(range(structure.count), 2))
    flat = value.reshape(-1)
    new = structure.usual(value, one) if structure.sums_alike else {one: flat[other].item(), other: flat[one].item()}
    return _with(
        case, index, structure.changed(value, new)
    ), f"two elements of `{_argument(case, index)}` alone were swapped"


def _with(case: Case, index: int, value: torch.Tensor) -> tuple[object, ...]:
    return (*case.inputs[:index], value, *case.inputs[index + 1 :])


def _argument(case: Case, index: int) -> str:
    return case.operand_names[f"input[{index}]"]
