"""Baseline errors under PyTorch's default flags, which let cuDNN use TensorFloat-32 in timed calls.

TensorFloat-32 moves values across non-smooth points, so that two right gradients may differ by percents. Timed calls
therefore get values of few bits: inputs with the bits of TensorFloat-32, parameters with half of them. The products of
those, and of two parameters, are exact in it, so that a forward's values lie on the same side of each point as in
float32, and only the backward rounds. What is right then differs by 1e-3 at most.

A forward that rounds all the same, because it scales its inputs first, or is deep, shows in its outputs. Its gradients
are judged by the errors of a reference that rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from grader.grading.compare import blocks, error_sizes, nonsmooth, tolerance
from grader.grading.compare.blocks import is_large
from grader.grading.compare.expected import ELEMENT_TOLERANCE
from grader.grading.oracle.case import Case
from grader.grading.oracle.comparability import differing
from grader.grading.oracle.evaluation import Evaluation, Pass
from grader.grading.oracle.fewer_rows import ROWS, WHOLE
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.perturbed_runs import perturbed_runs
from grader.grading.oracle.remembered import remembered
from grader.grading.oracle.values import cut_each, is_float, values_of_each
from grader.machine.backends import backend
from grader.verdict.precision import TF32_BITS

Errors = Mapping[str, float]
"""Relative errors in the Euclidean norm by the name of a tensor in messages."""


@remembered
def shipped_error(oracle: Oracle, case: Case, *, tf32: bool) -> Errors:
    """Relative error of eager PyTorch by tensor name; `tf32` allows TensorFloat-32 in cuDNN, its default.

    At full size it is that with fewer rows, or that of the size itself where its exact values are known and it is
    larger: PyTorch may add up in another order there.
    """
    if (few := _few_rows(oracle, case)) is not case:
        known = shipped_error(oracle, few, tf32=tf32)
        return _with_own(case, known) if oracle.runs_float64(case) else known
    plain = Pass.of(case)
    passes = [replace(plain, tf32=tf32)]
    traits = oracle.traits(case)
    rounds = traits.flops > 0 if oracle.precision.meaning.tf32 else traits.convolves
    if tf32 and backend(oracle.device).tf32 and rounds:
        # cuDNN may have taken float32 for the reference's convolutions and take TensorFloat-32 for the same ones in
        # other groups or another layout. The flags allow it: operands rounded to TensorFloat-32 show its error.
        passes.append(plain.in_tf32())
    errors: dict[str, float] = {}
    for run in oracle.ask(case, passes):
        tables = ((case.outputs, run.outputs), (case.gradients, run.gradients))
        pairs = [
            (expected, value)
            for table, values in tables
            for name, expected in table.items()
            if (value := values[name]) is not None and expected is not None and expected.dtype.is_floating_point
        ]
        found = blocks.baseline_errors([value for _, value in pairs], [expected.reference64 for expected, _ in pairs])
        for (expected, _), (error, _) in zip(pairs, found, strict=True):
            relative = max(error, expected.error_l2) / max(expected.norm, 1e-300)
            errors[expected.name] = max(errors.get(expected.name, 0.0), relative)
    return errors


def _with_own(case: Case, errors: Errors) -> Errors:
    """The errors, or the case's own where they are larger."""
    floating = [
        one for one in (*case.outputs.values(), *case.gradients.values()) if one and one.dtype.is_floating_point
    ]
    own = {one.name: one.error_l2 / max(one.norm, 1e-300) for one in floating}
    return {**errors, **{name: max(error, errors.get(name, 0.0)) for name, error in own.items()}}


@dataclass(frozen=True)
class FlagErrors:
    """Errors of right results in TensorFloat-32 against float32."""

    outputs: Errors
    """Errors of a forward that rounds the operands of its convolutions, on values of all bits."""
    few_bits: Errors
    """Errors of outputs and gradients on values of few bits."""

    def forward_is_exact(self, distances: Mapping[str, tuple[float, float]]) -> bool:
        """Whether outputs on values of few bits show no rounding to TensorFloat-32, where it would show.

        `distances`: the norms of the difference and of the reference's output, by name.
        """
        for name, (distance, size) in distances.items():
            bound = tolerance.BASELINE_FACTOR_L2 * (self.few_bits.get(name, 0.0) + ELEMENT_TOLERANCE)
            if distance > bound * size or bound > self.outputs.get(name, 0.0) / 2:
                return False
        return True


def matter(oracle: Oracle, case: Case) -> bool:
    """Whether the default flags change what the reference computes, on a device that has TensorFloat-32.

    Where they do not, timed calls have the flags of all others, so that nothing tells them apart.
    """
    if not backend(oracle.device).tf32 or oracle.precision.meaning.tf32:
        return True
    return oracle.remember(("flags matter", case.variant, case.training), partial(_matter, oracle, case))


def _matter(oracle: Oracle, case: Case) -> bool:
    if oracle.traits(case).convolves:
        return True
    few = _few_rows(oracle, case)
    plain = Pass.of(few, backward=False)
    one, other = oracle.ask(few, [plain, replace(plain, tf32=True)])
    return bool(differing(one, other))


def applies(oracle: Oracle, case: Case) -> bool:
    """Whether the reference convolves, and may do so in TensorFloat-32 in timed calls only."""
    if not backend(oracle.device).tf32 or oracle.precision.meaning.tf32:
        return False
    return oracle.traits(case).convolves


def errors(oracle: Oracle, case: Case) -> FlagErrors:
    """The errors of right results of a size."""
    return oracle.remember(("flag errors", case.variant, case.training), partial(_errors, oracle, case))


def _errors(oracle: Oracle, case: Case) -> FlagErrors:
    case = _few_rows(oracle, case)
    plain, forward = Pass.of(case), Pass.of(case, backward=False)
    ask = partial(oracle.ask, case)
    exact, rounded = ask([forward, replace(forward, substitute="tf32")])
    shown = _relative(case, rounded, exact)
    tables = oracle.traits(case).tables
    few = replace(plain, inputs=inputs_of_few_bits(plain.inputs), state=state_of_few_bits(plain.state, tables))
    right, most = next(ask([few])), dict[str, float]()
    others = ask([replace(few, tf32=True), replace(few, substitute="tf32")])
    # A small call that rounding moves across a non-smooth point is compared with exact values of its own.
    count = int(any(map(is_large, few.inputs)))
    for runs in (others, perturbed_runs(ask, few, range(count), nonsmooth.PERTURBATION_ULPS)):
        for run in runs:
            for name, error in _relative(case, run, right).items():
                most[name] = max(most.get(name, 0.0), error)
    return FlagErrors(shown, most)


def _few_rows(oracle: Oracle, case: Case) -> Case:
    """The case that stands for one at full size."""
    if oracle.models.has_fewer_rows and case.variant in WHOLE:
        return oracle.case(ROWS, training=case.training)
    return case


def _relative(case: Case, run: Evaluation, right: Evaluation) -> dict[str, float]:
    rows = [
        (expected.name, value, getattr(right, table)[name])
        for table, tensors in (("outputs", case.outputs), ("gradients", case.gradients))
        for name, value in getattr(run, table).items()
        if value is not None and (expected := tensors[name]) is not None and expected.dtype.is_floating_point
    ]
    distances = error_sizes.distances([value for _, value, _ in rows], [base for *_, base in rows])
    pairs = [between or (float("inf"), 1.0) for between in distances]
    return {name: distance / max(size, 1e-300) for (name, *_), (distance, size) in zip(rows, pairs, strict=True)}


def inputs_of_few_bits(inputs: Collection[object]) -> list[object]:
    """Inputs cut to the bits of TensorFloat-32, but whole numbers."""
    return _cut_each(inputs, TF32_BITS)


def state_of_few_bits(state: Mapping[str, torch.Tensor], tables: Collection[str]) -> dict[str, torch.Tensor]:
    """Parameters and buffers but `tables` cut to half of those bits."""
    names = [name for name in state if name not in tables]
    return {**state, **dict(zip(names, _cut_each([state[name] for name in names], TF32_BITS // 2), strict=True))}


def _cut_each(values: Collection[object], bits: int) -> list[Any]:
    kinds = iter(values_of_each([value for value in values if is_float(value)]))
    kept = [is_float(value) and not next(kinds).whole for value in values]
    found = iter(cut_each((value for value, cuts in zip(values, kept, strict=True) if cuts), bits))
    return [next(found) if cuts else value for value, cuts in zip(values, kept, strict=True)]
