"""Runs of the reference with noise on inputs and parameters, behind baseline errors and spreads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from grader.grading.compare import nonsmooth
from grader.grading.compare.blocks import is_large
from grader.grading.oracle.evaluation import Ask, Evaluation, Pass
from grader.grading.oracle.values import is_float, perturbed, perturbed_state, ties_broken

PERTURBED_RUNS = 3
"""Runs on perturbed inputs and parameters behind the baseline error. A choice: a branch that half of all runs take is
in the eager run or one of these in 15 of 16 cases."""
Again = Callable[[range, float], Iterator[Evaluation]]
"""Makes eager runs as `perturbed_runs` does, for turns and a size of the noise."""


def perturbed_runs(ask: Ask, plain: Pass, turns: range, ulps: float) -> Iterator[Evaluation]:
    """Yields an eager run for each turn, with noise on inputs and parameters.

    The noise is `ulps` units of float32's epsilon, relative. Large inputs stay as they are if there are parameters.
    """
    return ask(perturbed_passes(plain, turns, ulps), streamed=any(map(is_large, plain.inputs)))


def perturbed_passes(plain: Pass, turns: range, ulps: float) -> Iterator[Pass]:
    """Yields the passes of `perturbed_runs`."""
    keeps_inputs = any(map(is_large, plain.inputs)) and any(map(is_float, plain.state.values()))
    for turn in turns:
        inputs = plain.inputs
        if not keeps_inputs:
            # Those behind the spread order ties in every way.
            wide = ulps >= nonsmooth.ULPS
            inputs = ties_broken(inputs, turn, ulps) if wide else perturbed(inputs, ulps)
        # A draw that matters no more than rounding (`randomness`) is one more perturbation.
        earlier = tuple(perturbed(arguments, ulps) for arguments in plain.earlier)
        yield replace(plain, inputs=inputs, state=perturbed_state(plain.state, ulps), seed=turn + 1, earlier=earlier)
