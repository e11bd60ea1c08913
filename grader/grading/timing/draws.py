"""The values of timed calls: inputs, parameters and grad_outputs, drawn anew for every call.

Both sides run on the same values. Where these take gigabytes, the second side's are drawn again under the same seed, so
that they need no memory until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch

from grader.grading import chance
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import (
    ValueKinds,
    as_before,
    as_real,
    draw_cotangents,
    is_differentiable,
    is_mask,
    noisy_each,
    seeded,
    values_of_each,
)
from grader.grading.timing import shipped_flags
from grader.machine.backends import backend

PARAMETER_NOISE = 0.05
"""Relative size of the noise added to the parameters for each call, so that nothing computed from old ones is of use.
A choice: far above any tolerance."""
SAME_INPUT_NOISE = 1e-3
"""Relative size of the noise added to all inputs where a problem draws one of them alike each time. A choice: above the
tolerance, and small enough to keep the problem's own values."""


@dataclass(frozen=True)
class Draw:
    """The values that one call runs on. Both sides get the same."""

    inputs: Sequence[object]
    state: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor]
    few_bits: bool = False
    """Inputs and parameters have few bits (`shipped_flags`)."""


@dataclass(frozen=True)
class Source:
    """The values of one call: kept, or drawn when they are needed."""

    values: Callable[[], Draw]
    """Returns equal bits each time."""
    few_bits: bool = False

    @staticmethod
    def of(draw: Draw) -> Source:
        """A draw that is kept."""
        return Source(lambda: draw, draw.few_bits)


class _Seeds(NamedTuple):
    """A seed for each kind of values: under one seed, normal inputs and grad_outputs would be equal."""

    inputs: int
    noise: int
    cotangents: int

    @staticmethod
    def new() -> _Seeds:
        return _Seeds(*(chance.new_seed() for _ in _Seeds._fields))


class Draws:
    """Draws the values of calls of one case."""

    def __init__(self, oracle: Oracle, case: Case, *, few_bits: bool) -> None:
        """With `few_bits`, training steps run on values that are exact in TensorFloat-32."""
        self._oracle, self._case, self._few_bits = oracle, case, few_bits
        self._same_inputs = any(is_differentiable(a) and torch.equal(a, b) for a, b in self._two_draws(None, None))
        """The problem draws the same values each time."""
        self._tables, self._integers = oracle.traits(case).tables, oracle.traits(case).integers
        place = backend(oracle.device).torch_device
        infinite = {name: case.outputs[name].infinite for name in case.cotangents}
        self._silent = {name: where.to(place) for name, where in infinite.items() if where is not None}
        """Masks by output name: where an output is infinite, its grad_output is zero. The inputs decide where, so that
        they are then the same in every call."""

    @cached_property
    def repeat(self) -> bool:
        """Whether inputs that are drawn again under the same seed are the same."""
        seed = chance.new_seed()
        return all(torch.equal(a, b) for a, b in self._two_draws(seed, seed))

    def source(self, *, training: bool, keep: bool) -> Source:
        """The values of one call, with `keep` drawn now; those of a training step have a grad_output."""
        if keep:
            return Source.of(self._draw(None, training=training))
        return Source(partial(self._draw, _Seeds.new(), training=training), training and self._few_bits)

    def _draw(self, seeds: _Seeds | None, *, training: bool) -> Draw:
        case, device = self._case, self._oracle.device
        inputs = list(case.inputs) if self._silent else self._inputs(seeds and seeds.inputs)
        with nullcontext() if seeds is None else seeded(device, seeds.noise):
            if self._same_inputs or self._silent:
                moved = [index for index, value in enumerate(inputs) if is_differentiable(value) and not is_mask(value)]
                noisy = _noisy_each([inputs[index] for index in moved], SAME_INPUT_NOISE)
                for index, value in zip(moved, noisy, strict=True):
                    inputs[index] = value
            state = {**case.state, **(self._integers if bool(torch.randint(2, ())) else {})}
            names = [name for name, value in state.items() if name not in self._tables and is_differentiable(value)]
            state.update(zip(names, _noisy_each([state[name] for name in names], PARAMETER_NOISE), strict=True))
            state = self._oracle.traits(case).in_order(state)
        if not training:
            return Draw(inputs, state, {})
        cotangents = draw_cotangents(case.cotangents, device, seeds and seeds.cotangents)
        for name, silent in self._silent.items():
            cotangents[name].masked_fill_(silent, 0)
        draw = Draw(inputs, state, cotangents)
        return self._with_few_bits(draw) if self._few_bits else draw

    def _two_draws(self, first: int | None, second: int | None) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The tensors of two draws under these seeds or any, in pairs."""
        pairs = zip(self._inputs(first), self._inputs(second), strict=True)
        return [(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]

    def _inputs(self, seed: int | None) -> list[object]:
        return self._oracle.models.draw(self._case.variant, seed)[1]

    def edited(self, source: Source) -> Source:
        """The values with a few elements of the inputs changed."""
        draw = source.values()
        structures = variations.structures(self._oracle, self._case)
        inputs = [structures[i].edited(v) if is_differentiable(v) else v for i, v in enumerate(draw.inputs)]
        other = replace(draw, inputs=inputs)
        return Source.of(self._with_few_bits(other) if draw.few_bits else other)

    def _with_few_bits(self, draw: Draw) -> Draw:
        inputs = shipped_flags.inputs_of_few_bits(draw.inputs)
        state = shipped_flags.state_of_few_bits(draw.state, self._tables)
        return Draw(inputs, state, draw.cotangents, few_bits=True)


def _noisy_each(values: Sequence[object], share: float) -> list[torch.Tensor]:
    """Floating-point tensors with relative noise of this size, those in [-1, 1] but masks within it."""
    real = [as_real(value) for value in values]
    kinds = [ValueKinds(mask=False, whole=False, unit=kind.unit and not kind.mask) for kind in values_of_each(real)]
    noisy = noisy_each(real, [share] * len(real), kinds)
    return [as_before(new, old) for new, old in zip(noisy, values, strict=True)]
