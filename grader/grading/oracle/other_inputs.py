"""Inputs unlike the drawn ones (larger, sorted, skewed), and the reference's outputs for them.

They keep what all draws have in common (`input_structure`): nonnegative inputs stay nonnegative, probabilities stay
probabilities, indices are other indices of the same tensor. Inputs that the reference refuses, or answers with infinity
or NaN, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from grader.errors import ReferenceRefused
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.compare.expected import COARSE_TOLERANCE, Expected
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.noise import is_float, is_mask, values_of
from grader.grading.oracle.oracle import Oracle, remembered
from grader.grading.oracle.trained_state import SMALL
from grader.machine.backends import backend

SCALED_DOWN = "inputs multiplied by 0.001"
SMALL_PARAMETERS = "parameters multiplied by 0.001"
"""These two show an epsilon: a variance of 1 becomes a tenth of the usual 1e-5. A bias may hide small inputs."""
NEAR_RANGE = "inputs scaled up to near the largest number"
"""The change of which only an overflow counts: a mask of -1e9 loses its meaning there."""
Change = Callable[[Structure, torch.Tensor], torch.Tensor | None]


@dataclass(frozen=True)
class OtherInputs:
    """A case with changed inputs and the outputs for them."""

    change: str
    """What changed, for a message: "for ..."."""
    case: Case


@remembered
def other_inputs(oracle: Oracle, case: Case) -> tuple[OtherInputs, ...]:
    """The case with inputs of each kind that the reference takes; of a large case only some.

    Raises ReferenceLost, ReferenceOutOfMemory.
    """
    structures = questions.structures(oracle, case)
    bounded = backend(oracle.device).own_memory
    changed: list[tuple[str, list[object]]] = []
    for name, change in _CHANGES.items():
        new = {
            i: _changed(change, structures[i], value, bounded=bounded)
            for i, value in enumerate(case.inputs)
            if isinstance(value, torch.Tensor) and i in structures
        }
        moved = [i for i, value in new.items() if value is not case.inputs[i]]
        # Each input alone: beside another that is as large, an overflow on the way to an output may not show in it.
        for group in [[i] for i in moved] if name == NEAR_RANGE else [moved] if moved else []:
            changed.append((name, [new[i] if i in group else value for i, value in enumerate(case.inputs)]))
    changed = changed[: CHECK_BYTES // max(case.nbytes, 1)]
    expected = _answers(oracle, case, [inputs for _, inputs in changed])
    others = [
        (name, replace(case, inputs=tuple(inputs)), outputs)
        for (name, inputs), outputs in zip(changed, expected, strict=True)
    ]
    small = _with_small_parameters(oracle, case)
    if small is not None:
        others.append((SMALL_PARAMETERS, small, _answers(oracle, small, [case.inputs])[0]))
    return tuple(
        OtherInputs(name, replace(other, outputs=_tolerant(case, name, outputs)))
        for name, other, outputs in others
        if outputs is not None and all(_answers_well(of, case.outputs[key]) for key, of in outputs.items())
    )


def _with_small_parameters(oracle: Oracle, case: Case) -> Case | None:
    learned = oracle.traits(case).learned
    small = {name: value * 1e-3 for name, value in case.state.items() if name in learned and is_float(value)}
    return replace(case, state={**case.state, **small}) if small else None


def _answers(
    oracle: Oracle, case: Case, inputs_of_each: Sequence[Sequence[object]]
) -> Sequence[Mapping[str, Expected] | None]:
    """The outputs for each of these inputs, None for those that the reference refuses."""
    try:
        return questions.outputs_for_each(oracle, case, inputs_of_each) if inputs_of_each else ()
    except ReferenceRefused:
        if len(inputs_of_each) == 1:
            return (None,)
        return [_answers(oracle, case, [inputs])[0] for inputs in inputs_of_each]


def _answers_well(expected: Expected, usual: Expected) -> bool:
    """Whether float32 suffices for the reference: an overflow inside, as of a variance, may leave finite values."""
    finite = expected.overflows is None and bool(expected.reference64.isfinite().all())
    return finite and expected.error_l2 <= SMALL * max(expected.norm, usual.norm)


def room(size: float) -> float:
    """The error that another algorithm may have at this norm: a quarter of what rule 2 then allows."""
    return 10 * COARSE_TOLERANCE * size


def _tolerant(case: Case, change: str, outputs: Mapping[str, Expected]) -> dict[str, Expected]:
    """The floating-point outputs, with room for another algorithm.

    A kernel may lose digits that the drawn inputs never need, as the mean of squares less the squared mean does, or an
    exponential less 1. Ties decide integers.
    """
    tolerant = {}
    for name, expected in outputs.items():
        if not expected.dtype.is_floating_point:
            continue
        size, count = expected.norm, max(expected.reference64.numel(), 1)
        if change not in (SCALED_DOWN, SMALL_PARAMETERS):
            # What cancels there, such as a row less its mean, is noise beside the usual values.
            size = max(size, case.outputs[name].norm)
        slack = room(size)
        tolerant[name] = replace(
            expected,
            error_l2=expected.error_l2 + slack,
            error_max=expected.error_max + slack / math.sqrt(count),
        )
    return tolerant


def _changed(change: Change, structure: Structure, value: torch.Tensor, *, bounded: bool) -> torch.Tensor:
    """The value changed, or itself if the change does not apply to it.

    `bounded` keeps values in [-1, 1] that are there: an assertion on a device ends the reference's process.
    """
    if structure.fixed or value.numel() < 2 or not value.any():
        return value
    if not is_float(value):
        codes = value.dtype != torch.bool and not value.is_complex()
        return _one_mostly(value) if change is _alike and codes else value
    if is_mask(value) or values_of(value).whole or structure.sums_alike:
        return value
    new = change(structure, value)
    if new is None or (bounded and structure.high <= 1 and bool((new.abs() > 1).any())):
        return value
    return new


def _scaled(structure: Structure, value: torch.Tensor, factor: float) -> torch.Tensor:
    return structure.elementwise(value, lambda part: part * factor)


def _smaller(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    return _scaled(structure, value, 1e-3)


def _larger(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    """Up to 100, whose exponential is infinite, with both signs if there are both."""
    smaller = min(float(value.max()), -float(value.min()))
    reached = smaller if smaller > 0 else float(value.abs().max())
    return _scaled(structure, value, max(100 / reached, 8.0))


def _largest(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Up to 6e30 in float32: products of two overflow."""
    largest = torch.finfo(value.dtype).max ** 0.8
    return None if math.isfinite(structure.high) else _scaled(structure, value, largest / float(value.abs().max()))


def _shifted(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Shifted by ten standard deviations, downwards if that keeps the range."""
    step = 10 * float(value.std())
    if structure.low == -math.inf:
        return structure.elementwise(value, lambda part: part - step)
    return None if math.isfinite(structure.high) else structure.elementwise(value, lambda part: part + step)


def _sorted(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    return value.sort(-1).values if structure.dense and value.dim() else None


def _alike(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Each row close to the first one."""
    if not structure.dense or value.dim() < 2:
        return None
    rows = value.reshape(-1, value.shape[-1])
    return (rows[:1] + (rows - rows[:1]) / 10).view(value.shape)


def _equal(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    """All elements equal to the largest one."""
    largest = value.reshape(-1)[value.abs().argmax()]
    return structure.elementwise(value, lambda part: largest.expand(part.shape))


def _one_mostly(value: torch.Tensor) -> torch.Tensor:
    """Integers of which seven in eight are the first one; unchanged if all differ, or if they are in order."""
    flat = value.reshape(-1)
    if bool((flat.sort().values.diff() != 0).all()) or bool((value.diff() >= 0).all()):
        return value
    keeps = torch.arange(len(flat), device=value.device) % 8 == 1
    return torch.where(keeps, flat, flat[:1]).view(value.shape)


_CHANGES: Mapping[str, Change] = {
    SCALED_DOWN: _smaller,
    "inputs scaled up to 100": _larger,
    "inputs shifted by ten standard deviations": _shifted,
    "inputs sorted along the last dimension": _sorted,
    "inputs skewed, so that each row is close to the first one": _alike,
    "inputs all equal": _equal,
    NEAR_RANGE: _largest,
}
"""By what a message says: "for ..."."""
