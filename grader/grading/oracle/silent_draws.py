"""Draws in which all of an operand's gradient is zero: nothing that it enters is compared there.

A gate of few units behind a ReLU may pass nothing for the weights that a constructor happens to draw, and then for all
inputs. Any backward through that gate is right then, and so is any forward behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.grading import chance
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.first_look import FEWEST_SEEDS, absent
from grader.grading.oracle.models import ReferenceModels
from grader.grading.oracle.trained_state import as_trained


class CaseDraw(NamedTuple):
    """One draw of a case's inputs, with its parameters and buffers."""

    seed: int
    """The seed of the inputs."""
    constructed: dict[str, torch.Tensor]
    """As the constructor left them."""
    trained: Mapping[str, torch.Tensor]
    """After some steps of training."""


def replacement(models: ReferenceModels, case: Case, number: int, always_zero: set[str]) -> CaseDraw | None:
    """Another draw in which fewer operands of the case have gradients of zeros only, or None.

    `number` is the case's draw. Adds the operands whose gradients are zero in all draws to `always_zero`.
    """
    silent = _silent(case) - always_zero
    if not silent or not case.values_comparable:
        return None
    best, fewest, everywhere = None, silent, silent
    traits = models.traits(case)
    for _ in range(FEWEST_SEEDS):
        seed, model_seed = chance.new_seed(), chance.new_seed()
        constructed = models.constructed_under(case, model_seed, on_device=True)
        draw = CaseDraw(seed, constructed, as_trained(constructed, traits, number))
        left = _still_silent(models, case, draw, silent, repeats=number > 0)
        everywhere &= left
        if len(left) < len(fewest):
            best, fewest = draw, left
        if not left:
            break
    always_zero |= everywhere
    return best


def _silent(case: Case) -> frozenset[str]:
    """The operands that have a gradient, all of it zero."""
    found = {name: gradient.reference64 for name, gradient in case.gradients.items() if gradient is not None}
    return frozenset(name for name, value in found.items() if value.numel() and absent(value))


def _still_silent(
    models: ReferenceModels, case: Case, draw: CaseDraw, operands: frozenset[str], *, repeats: bool
) -> frozenset[str]:
    """The operands whose gradients are zero in this draw too; all of them if the reference refuses it."""
    init_inputs, inputs = models.draw(case.variant, draw.seed, repeats=repeats)
    if p.encode_value(list(init_inputs)) != case.init_inputs:
        return operands
    one = Pass(MODEL, inputs, draw.trained, case.cotangents, case.wrt, case.training)
    try:
        (found,) = models.ask(case, [one])
    except ReferenceRefused:
        return operands
    return frozenset(name for name in operands if absent(found.gradients[name]))
