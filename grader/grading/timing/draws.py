"""The values of timed calls: inputs, parameters and grad_outputs, drawn anew for every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import Values, draw_cotangents, is_float, is_mask, noisy_each, values_of_each
from grader.grading.timing import shipped_flags

PARAMETER_NOISE = 0.05
"""Relative size of the noise added to the parameters for each call, so that nothing computed from old ones is of use.
A choice: far above any tolerance."""
SAME_INPUT_NOISE = 1e-3
"""Relative size of the noise added to inputs that a problem draws alike each time. A choice: above the tolerance, and
small enough to keep the problem's own values."""


@dataclass(frozen=True)
class Draw:
    """The values that one call runs on. Both sides get the same."""

    inputs: Sequence[object]
    state: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]
    few_bits: bool = False
    """Inputs and parameters have few bits (`shipped_flags`)."""


class Draws:
    """Draws the values of calls of one case."""

    def __init__(self, oracle: Oracle, case: Case, *, few_bits: bool) -> None:
        """With `few_bits`, training steps run on values that are exact in TensorFloat-32."""
        self._oracle, self._case, self._few_bits = oracle, case, few_bits
        self._same_inputs = self._are_the_same()
        self._tables = oracle.traits(case).tables

    def new(self, *, training: bool) -> Draw:
        """The values of one call; those of a training step have a grad_output."""
        case = self._case
        _, inputs = self._oracle.draw(case.variant)
        if self._same_inputs:
            moved = [index for index, value in enumerate(inputs) if is_float(value) and not is_mask(value)]
            noisy = _noisy_each([inputs[index] for index in moved], SAME_INPUT_NOISE)
            for index, value in zip(moved, noisy, strict=True):
                inputs[index] = value
        state = dict(case.state)
        names = [name for name, value in state.items() if name not in self._tables and is_float(value)]
        state.update(zip(names, _noisy_each([state[name] for name in names], PARAMETER_NOISE), strict=True))
        if not training:
            return Draw(inputs, state, {})
        draw = Draw(inputs, state, draw_cotangents(case.cotangents, self._oracle.device))
        return self._with_few_bits(draw) if self._few_bits else draw

    def edited(self, draw: Draw) -> Draw:
        """The draw with a few elements of its inputs changed."""
        of = questions.structures(self._oracle, self._case)
        other = replace(draw, inputs=[of[i].edited(v) if is_float(v) else v for i, v in enumerate(draw.inputs)])
        return self._with_few_bits(other) if draw.few_bits else other

    def _with_few_bits(self, draw: Draw) -> Draw:
        inputs = shipped_flags.inputs_of_few_bits(draw.inputs)
        state = shipped_flags.state_of_few_bits(draw.state, self._tables)
        return Draw(inputs, state, draw.cotangents, few_bits=True)

    def _are_the_same(self) -> bool:
        """Whether the problem draws the same values each time."""
        one, other = (self._oracle.draw(self._case.variant)[1] for _ in range(2))
        return any(
            isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and is_float(a) and torch.equal(a, b)
            for a, b in zip(one, other, strict=True)
        )


def _noisy_each(values: Sequence[object], share: float) -> list[torch.Tensor]:
    """Floating-point tensors with relative noise of this size, those in [-1, 1] but masks within it."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    kinds = [Values(mask=False, whole=False, unit=of.unit and not of.mask) for of in values_of_each(tensors)]
    return noisy_each(tensors, [share] * len(tensors), kinds)
