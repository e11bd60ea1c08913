"""Inputs unlike the drawn ones (larger, sorted, skewed), and the reference's outputs for them.

They keep what all draws have in common (`input_structure`): probabilities stay probabilities, indices are other indices
of the same tensor, and only one change negates what is never negative. Inputs that the reference refuses, or answers
with infinity or NaN, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch

from grader.errors import ReferenceRefused
from grader.grading import chance
from grader.grading.budget import LEAST_SECONDS
from grader.grading.compare.blocks import CHECK_BYTES, HUGE_BYTES, norm
from grader.grading.compare.expected import COARSE_TOLERANCE, ELEMENT_TOLERANCE, Expected
from grader.grading.compare.narrow_types import spacing
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case, smallest
from grader.grading.oracle.code_changes import UNLIKE_EVERY_DRAW
from grader.grading.oracle.input_changes import (
    CERTAIN,
    KINDS,
    NEAR_RANGE,
    SCALED_DOWN,
    SCALED_FAR,
    SHIFTED_FAR,
    SMALLER,
    SOME_ZEROS,
    ZERO_SAMPLE,
    changed,
    unit,
)
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import derived
from grader.grading.oracle.settled import settled
from grader.grading.oracle.trained_state import SMALL, positive
from grader.grading.oracle.values import is_float
from grader.machine.backends import backend

SMALL_PARAMETERS = "parameters multiplied by 0.001"
"""Shows an epsilon where a bias hides small inputs. Inputs are of unit size at most."""
LARGER_PARAMETERS = "parameters multiplied by 10"
"""Reaches a bound on what grows as fast as an exponential, which overflows beyond."""
LARGE_PARAMETERS = "parameters multiplied by 100"
"""Reaches saturation and masked scores behind a norm, which takes the size of inputs away."""
SHIFTED_PARAMETERS = ("vectors of parameters less 3 or 7", "vectors of parameters plus 3 or 7")
"""Reaches branches of an activation whose argument all draws have on one side, as behind a sum of positive numbers, and
the bounds of a hardswish and a ReLU6."""
ZERO_PARAMETERS = "parameters of which every eighth is zero"
"""As a scale that begins at zero: a backward that finds the operand from the output divides by it. What is scaled so
ties."""
SPECIALS = frozenset({NEAR_RANGE, ZERO_SAMPLE, SOME_ZEROS, ZERO_PARAMETERS})
"""The changes of which only NaN and infinity count; of outputs in float16, values near the largest number count too."""
ALONE = frozenset({NEAR_RANGE, CERTAIN, SHIFTED_FAR, UNLIKE_EVERY_DRAW})
"""The changes that one input has at a time."""
EPSILON_SHOWS = frozenset({SCALED_DOWN, SMALL_PARAMETERS})
"""The changes that show an epsilon."""
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class OtherInputs:
    """A case with changed inputs and the outputs for them."""

    change: str
    """What changed, for a message: "for ..."."""
    case: Case


class Others(NamedTuple):
    """The case with inputs of each kind that is asked."""

    cases: tuple[OtherInputs, ...]
    no_room: tuple[str, ...]
    """Kinds for which a large case leaves no room, drawn at random."""
    no_time: tuple[str, ...]
    """Kinds for which a slow reference leaves no time, chosen at random."""


@derived
def other_inputs(oracle: Oracle, case: Case) -> Others:
    """The case with inputs of each kind that the reference takes; of a large or slow case only some.

    Raises ReferenceLost, ReferenceOutOfMemory.
    """
    structures = variations.structures(oracle, case)
    inputs = list(_with_other_values(oracle, case, structures))
    fitting = drawn_in_room(oracle, case.without_gradients().nbytes, inputs)
    parameters = list(_with_other_parameters(oracle, case, structures))
    no_room = _left_out(inputs, fitting)
    if parameters and not any(one.change == LARGE_PARAMETERS for one in parameters):
        no_room += [*SHIFTED_PARAMETERS, ZERO_PARAMETERS, LARGER_PARAMETERS, LARGE_PARAMETERS]
    kinds = [*fitting, *parameters]
    chosen = _drawn_in_time(oracle, case, kinds)
    return Others(tuple(_answered(oracle, case, chosen)), tuple(no_room), tuple(_left_out(kinds, chosen)))


def _left_out(kinds: Iterable[OtherInputs], chosen: Iterable[OtherInputs]) -> list[str]:
    """The changes of which none was chosen, each once."""
    names = {one.change for one in chosen}
    return list(dict.fromkeys(one.change for one in kinds if one.change not in names))


def _with_other_values(oracle: Oracle, case: Case, structures: Mapping[int, Structure]) -> Iterator[OtherInputs]:
    """The case with inputs of each kind, without outputs."""
    bounded = backend(oracle.device).own_memory and oracle.traits(case).asserts
    for name in KINDS:
        new = {
            i: changed(name, structures[i], value, bounded=bounded, scales_whole=_is_number(case, i))
            for i, value in enumerate(case.inputs)
            if isinstance(value, torch.Tensor) and i in structures
        }
        moved = [i for i, value in new.items() if value is not case.inputs[i]]
        # Each input alone: beside another that is as large, an overflow on the way to an output may not show in it.
        # A distribution on one class is infinitely far from another one. A norm takes away the shift of its own input.
        # The reference may take other values of one constant, and none of another.
        for group in [[i] for i in moved] if name in ALONE else [moved] if moved else []:
            inputs = tuple(new[i] if i in group else value for i, value in enumerate(case.inputs))
            yield OtherInputs(name, replace(case, inputs=inputs))


def _answered(oracle: Oracle, case: Case, others: Sequence[OtherInputs]) -> Iterator[OtherInputs]:
    """Those of these cases that the reference answers well, with its outputs."""
    for one, outputs in zip(others, _answers(oracle, [one.case for one in others]), strict=True):
        change, other = one.change, one.case
        if outputs is None or (change == SHIFTED_FAR and not _as_usual(case, outputs)):
            continue
        if all(answers_well(output, case.outputs[name]) for name, output in outputs.items()):
            given = _tolerant(case, change, outputs) | _integers(oracle, other, outputs)
            yield OtherInputs(change, replace(other, outputs=given))


def drawn_in_room(oracle: Oracle, nbytes: int, kinds: Sequence[_Kind]) -> list[_Kind]:
    """Those of these kinds of inputs for whose copies there is room: all, or drawn ones, in their order.

    `nbytes` are a copy's. A GPU has room for HUGE_BYTES, a host for CHECK_BYTES.
    """
    return _drawn(kinds, (HUGE_BYTES if backend(oracle.device).own_memory else CHECK_BYTES) // max(nbytes, 1))


def _drawn_in_time(oracle: Oracle, case: Case, kinds: Sequence[_Kind]) -> list[_Kind]:
    """All of these kinds, or as many drawn ones as fit into the time of an experiment."""
    # A forward takes half as long as a forward and backward at most.
    seconds_each = (oracle.exact_seconds(case) + oracle.costs.seconds_of(case)) / 2
    fitting = oracle.budget.experiment_seconds / max(seconds_each, LEAST_SECONDS)
    return _drawn(kinds, max(1, int(min(fitting, len(kinds)))))


def _drawn(kinds: Sequence[_Kind], most: int) -> list[_Kind]:
    """All of these, or so many drawn ones, in their order."""
    return [kinds[index] for index in sorted(chance.draw.sample(range(len(kinds)), min(most, len(kinds))))]


def _with_other_parameters(oracle: Oracle, case: Case, structures: Mapping[int, Structure]) -> Iterator[OtherInputs]:
    """The case with parameters of each kind, without outputs; large ones only of the smallest parameters."""
    learned = oracle.traits(case).learned - oracle.traits(case).bounds
    moved = {name: value for name, value in case.state.items() if name in learned and is_float(value)}
    if not moved:
        return
    units = [
        unit(structures[i], value) if is_float(value) and _shrinks(case, structures, i, value) else value
        for i, value in enumerate(case.inputs)
    ]
    small = {name: value * 1e-3 for name, value in moved.items()}
    yield OtherInputs(SMALL_PARAMETERS, replace(case, inputs=tuple(units), state={**case.state, **small}))
    moved = smallest(moved, CHECK_BYTES // 2)
    if not moved:
        return
    vectors = {name: value for name, value in moved.items() if sum(extent > 1 for extent in value.shape) <= 1}
    for name, sign in zip(SHIFTED_PARAMETERS, (-1, 1), strict=True):
        if vectors:
            shifted = {key: _shifted(value, sign) for key, value in vectors.items()}
            yield OtherInputs(name, replace(case, state={**case.state, **shifted}))
    thinned = {name: _thinned(value) for name, value in moved.items()}
    yield OtherInputs(ZERO_PARAMETERS, replace(case, state={**case.state, **thinned}))
    # With the constructor's signs: what grows as an exponential does so for a positive number only.
    signed = positive(moved, oracle.models.constructed(case), frozenset(moved))
    larger = {name: value * 10 for name, value in signed.items()}
    yield OtherInputs(LARGER_PARAMETERS, replace(case, state={**case.state, **larger}))
    large = {name: value * 100 for name, value in moved.items()}
    # All scores may have one sign for some parameters, and then none is below a finite mask.
    flipped = [{name: _with_other_signs(value) for name, value in large.items()} for _ in range(2)]
    for state in (large, *flipped):
        yield OtherInputs(LARGE_PARAMETERS, replace(case, state={**case.state, **state}))


def _shifted(value: torch.Tensor, sign: int) -> torch.Tensor:
    """By 3 and by 7 in turn."""
    steps = torch.arange(value.numel(), device=value.device).view(value.shape) % 2 * 4 + 3
    return value + sign * steps


def _thinned(value: torch.Tensor) -> torch.Tensor:
    """With every eighth element zero, the first one too."""
    flat = value.flatten()
    return flat.where(torch.arange(len(flat), device=flat.device) % 8 != 0, 0).view(value.shape)


def _with_other_signs(value: torch.Tensor) -> torch.Tensor:
    """Random signs for a tensor that has both."""
    both = bool((value > 0).any() and (value < 0).any())
    return value * (torch.randint_like(value, 2) * 2 - 1) if both else value


def _shrinks(case: Case, structures: Mapping[int, Structure], index: int, value: torch.Tensor) -> bool:
    """Whether an input may be scaled down to unit size."""
    scales = _is_number(case, index)
    return changed(SMALLER, structures[index], value, bounded=False, scales_whole=scales) is not value


def _is_number(case: Case, index: int) -> bool:
    """Whether an input of whole numbers is differentiated, so that it is no code or index to the reference."""
    gradient = case.gradients.get(f"input[{index}]")
    return gradient is not None and bool(gradient.reference64.any())


def _answers(oracle: Oracle, cases: Sequence[Case]) -> Sequence[Mapping[str, Expected] | None]:
    """The outputs of each of these variations of one case, None for those that the reference refuses."""
    try:
        return variations.outputs_of_each(oracle, cases) if cases else ()
    except ReferenceRefused:
        if len(cases) == 1:
            return (None,)
        return [_answers(oracle, [case])[0] for case in cases]


def _as_usual(case: Case, outputs: Mapping[str, Expected]) -> bool:
    """Whether these are the outputs for the case's own inputs, but for 1%."""
    usual = {name: case.outputs[name] for name in outputs if case.outputs[name].rounds}
    return all(
        norm(outputs[name].reference64 - output.reference64) <= SMALL * output.norm for name, output in usual.items()
    )


def answers_well(expected: Expected, usual: Expected) -> bool:
    """Whether float32 suffices for the reference, and the usual values are more than rounding.

    An overflow inside, as of a variance, may leave finite values. Of what cancels, as the gradient of a bias that a
    softmax ignores, nobody knows how it grows.
    """
    finite = expected.overflows is None and bool(expected.reference64.isfinite().all())
    return finite and usual.norm >= usual.error_l2 and expected.error_l2 <= SMALL * max(expected.norm, usual.norm)


def room(size: float, dtype: torch.dtype = torch.float32) -> float:
    """The error that another algorithm may have at this norm.

    It is a quarter of what rule 2 then allows, half in 16 bits. In these, what cancels leaves rounding of the type:
    flash attention takes the row sums of its backward from the rounded output.
    """
    return 10 * (COARSE_TOLERANCE + spacing(dtype)) * size


def lost_digits(usual: float) -> float:
    """The error that rounding beside values of the usual norm leaves, as in an exponential less 1."""
    return ELEMENT_TOLERANCE * usual


def _tolerant(case: Case, change: str, outputs: Mapping[str, Expected]) -> dict[str, Expected]:
    """The floating-point outputs, with room for another algorithm.

    A kernel may lose digits that the drawn inputs never need, as the mean of squares less the squared mean does, or an
    exponential less 1.
    """
    tolerant = {}
    for name, expected in outputs.items():
        if not expected.dtype.is_floating_point:
            continue
        size, usual, count = expected.norm, case.outputs[name].norm, max(expected.reference64.numel(), 1)
        if change == SCALED_FAR:
            slack = room(size, expected.dtype) + lost_digits(usual)
        else:
            # What cancels there, such as a row less its mean, is noise beside the usual values.
            slack = room(size if change in EPSILON_SHOWS else max(size, usual), expected.dtype)
        tolerant[name] = replace(
            expected,
            error_l2=expected.error_l2 + slack,
            error_max=expected.error_max + slack / math.sqrt(count),
        )
    return tolerant


def _integers(oracle: Oracle, case: Case, outputs: Mapping[str, Expected]) -> dict[str, Expected]:
    """The integer outputs, where noise as large as the error that other outputs may have leaves them as they are."""
    if oracle.is_slow(case):
        return {}
    return settled(oracle, case, {name: output for name, output in outputs.items() if not output.rounds}, room(1.0))
