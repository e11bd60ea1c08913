"""Tests whether random outputs have the reference's mean, spread, independence and fresh numbers.

A first set of reference runs gives each element's mean and spread. Each later run of either side gives a few figures
relative to those, and a two-sample test compares the figures. The test finds dropout that is left out, unscaled, of
another probability, drawn once and kept, or shared by a row or by a batch. `exchange.py` finds rows that are not random
and numbers that other elements share. Neither is a proof that two distributions are equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.executor import JobResult
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parts import export_buffers, forward_step
from grader.grading.compare.blocks import LARGE_BYTES, reals
from grader.grading.compare.nonsmooth import ULPS
from grader.grading.compare.scaling import ROUNDING_RESIDUAL
from grader.grading.messages import diagnose
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case, Table, export_outputs
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import derived, once
from grader.grading.oracle.values import is_float, perturbed, perturbed_state
from grader.grading.random.exchange import Variation, differences
from grader.machine.backends import backend
from grader.machine.host import on_one_thread
from grader.verdict.models import Diagnosis, TimeLimits

RUNS = 64
"""Forwards of each side, so that a mask out of a set of 16 repeats in 50 of them; of large outputs a quarter."""
DEVIATIONS = 5.0
"""Standard errors between two means that count, in two tests in a row: by chance once in 10^7 gradings."""
SLIGHT = 1e-2
"""Never counts: of a figure, in its own unit; of an element that hardly varies, relative to the output's RMS."""

EXTREMES = "share of elements at the smallest or largest value that the reference draws"
REMEDIES = {
    "share of runs that repeat an earlier output": "draw new random numbers in every forward, as many as the reference",
    "projection on the reference's mean": "check the probability and the scale of what is drawn",
    "distance from the reference's mean": "check the probability, the scale, and the elements that are not random",
    EXTREMES: "check the scale of what is kept",
}
SHARED = "number of elements along dimension {} that vary together"
INDEPENDENT = "draw an independent number for each element for which the reference does"

TensorKey = tuple[Table, str]
"""An output, or a buffer after the forward, that holds random numbers."""
_Found = dict[tuple[TensorKey, str], tuple[str, str]]
"""What differs, and a remedy, by part and figure."""


class _Figures(NamedTuple):
    """What is compared of runs of one side."""

    means: dict[str, torch.Tensor]
    """Figures by name, each with a number for each run or pair of runs."""
    variation: Variation


class _Usual(NamedTuple):
    """Mean and spread of each element over runs of the reference."""

    mean: torch.Tensor
    scale: torch.Tensor
    """Standard deviation, at least SLIGHT of the RMS."""
    finite: bool
    low: torch.Tensor
    high: torch.Tensor
    """The smallest and the largest values: behind dropout, an element has one of these."""

    @staticmethod
    def of(runs: torch.Tensor) -> _Usual:
        values = runs.nan_to_num(0.0, 0.0, 0.0)
        floor = SLIGHT * float(values.square().mean().sqrt()) + torch.finfo(values.dtype).tiny
        scale, finite = values.var(0).sqrt().clamp(min=floor), bool(runs.isfinite().all())
        return _Usual(values.mean(0), scale, finite, values.amin(0), values.amax(0))


def judge_distribution(candidate: Candidate, oracle: Oracle, case: Case) -> tuple[str, Diagnosis] | None:
    """The name of an output or buffer with another distribution, and its diagnosis.

    Raises Stopped.
    """
    if not _parts(case):
        return None
    with on_one_thread():
        found = _judge_draws(candidate, oracle, case, grad=False)
        if found is None:
            found = _judge_draws(
                candidate, oracle, _with_equal_rows(oracle, case), grad=bool(case.wrt), equal_rows=True
            )
        return found


def _perturbed(case: Case) -> Case:
    """The case with inputs and parameters changed by a few rounding errors."""
    inputs, state = perturbed(case.inputs, ULPS), perturbed_state(case.state, ULPS)
    return replace(case, inputs=tuple(inputs), state=state)


@derived
def _with_equal_rows(oracle: Oracle, case: Case) -> Case:
    """The case with inputs whose rows along the first dimension are equal, if the reference takes it, or the case.

    Rows that share a random number are equal then. Otherwise, a layer behind a shared mask turns it into differences
    between rows that look independent.
    """
    dense = [i for i, structure in variations.structures(oracle, case).items() if structure.dense]
    inputs = tuple(
        value[:1].expand_as(value).contiguous() if is_float(value) and i in dense else value
        for i, value in enumerate(case.inputs)
    )
    other = replace(case, inputs=inputs)
    try:
        variations.outputs_of(oracle, other)
    except ReferenceRefused:
        return case
    return other


def _judge_draws(
    candidate: Candidate, oracle: Oracle, case: Case, *, grad: bool, equal_rows: bool = False
) -> tuple[str, Diagnosis] | None:
    def reference(case: Case = case, times: int = 1) -> dict[TensorKey, torch.Tensor]:
        with oracle.models.lent() as worker:
            return _runs(Candidate(worker, oracle.device, TimeLimits()), case, grad, times)

    def figures(runs: Mapping[TensorKey, torch.Tensor]) -> dict[TensorKey, _Figures]:
        return {part: _figures(sample, usual[part]) for part, sample in runs.items()}

    key = ("random outputs", equal_rows)
    how = ("with gradients enabled" if grad else "", "equal rows" if equal_rows else "")
    where = ", ".join((case.where, *filter(None, how)))
    # On values changed by a few rounding errors: the reference's own then show whether these matter.
    noisy = case if equal_rows else _perturbed(case)
    usual = once(case, key, lambda: {part: _Usual.of(runs) for part, runs in reference(noisy).items()})
    found: _Found = {}
    # Most gradings end with the first turn. Its doubts need not be sure, but must be there: with half as many runs,
    # one key of 16 that is never dropped gave none in one test of five.
    for turn, times, exchanges in ((0, 2, 4 * RUNS), (1, 4, 16 * RUNS), (2, 4, 16 * RUNS)):
        expected = once(case, (*key, turn), partial(lambda times: figures(reference(times=times)), times))
        runs = _runs(candidate, case, grad, times)
        for (table, name), sample in runs.items():
            if usual[table, name].finite and not bool(sample.isfinite().all()):
                what = f"{_label(table, name)} has NaN or infinity where the reference never has"
                return name, diagnose("output_nan", what, where=where, remedy="look for a division by the mask")
        actual = figures(runs)
        means = _unequal_means(actual, expected, extremes=not equal_rows)
        doubts = means | _exchange(case, actual, expected, exchanges)
        found = {figure: what for figure, what in doubts.items() if not turn or figure in found}
        if not found:
            return None
        if turn and found.keys() & means.keys():
            break
    ((table, name), _), (amount, remedy) = next(iter(found.items()))
    what = f"{_label(table, name)} has another distribution than the reference's"
    return name, diagnose("output_distribution", what, where=where, amount=amount, remedy=remedy)


def _label(table: Table, name: str) -> str:
    return name if table == "outputs" else f"buffer `{name}`"


def _unequal_means(
    ours: Mapping[TensorKey, _Figures], theirs: Mapping[TensorKey, _Figures], *, extremes: bool
) -> _Found:
    """The figures whose means differ, and by how much (Welch's test).

    Extremes count where the reference has nothing else: not if values vary, or rounding moves them.
    """
    found = {}
    for part, figures in theirs.items():
        for figure, expected in figures.means.items():
            if figure == EXTREMES and not (extremes and float(expected.mean()) > 1 - SLIGHT):
                continue
            actual = ours[part].means[figure]
            error = math.sqrt(float(actual.var() + expected.var()) / len(expected))
            means = float(actual.mean()), float(expected.mean())
            if abs(means[0] - means[1]) > DEVIATIONS * error + SLIGHT:
                amount = f"{figure} {means[0]:.3g} where the reference has {means[1]:.3g}"
                found[part, figure] = amount, REMEDIES.get(figure, INDEPENDENT)
    return found


def _exchange(
    case: Case, ours: Mapping[TensorKey, _Figures], theirs: Mapping[TensorKey, _Figures], exchanges: int
) -> _Found:
    """What differs between the sides more than after exchanges of their runs."""
    found = {}
    for part, figures in theirs.items():
        table, name = part
        dtype = getattr(case, table)[name].dtype
        # Rounding to 16 bits changes the variance of an element that hardly varies.
        slight = max(SLIGHT, math.sqrt(torch.finfo(dtype).eps if dtype.is_floating_point else 0.0))
        differing = differences(ours[part].variation, figures.variation, exchanges, slight)
        found.update({(part, figure): what for figure, what in differing.items()})
    return found


def _figures(runs: torch.Tensor, usual: _Usual) -> _Figures:
    """The compared figures."""
    marks = [hash(run.cpu().numpy().tobytes()) for run in runs]
    values = runs.nan_to_num(0.0, 0.0, 0.0)
    size = float(usual.mean.square().sum() + usual.scale.square().sum())
    residual = (values - usual.mean) / usual.scale
    residual /= (1 + residual.square()).sqrt()  # bounded, so that rare large ones do not dominate
    repeats = torch.tensor([float(mark in marks[:turn]) for turn, mark in enumerate(marks)])
    means, spreads = (values * usual.mean).flatten(1).sum(1) / size, residual.square().flatten(1).mean(1)
    extremes = _at_extremes(values, usual).flatten(1).double().mean(1)
    figures = dict(zip(REMEDIES, (repeats, means, spreads, extremes), strict=True))
    # Elements that share a random number vary together, but for a sign that cancels in the product of two runs.
    product = residual[0::2] * residual[1::2]
    squares = product.square().flatten(1).sum(1) + SLIGHT**4 * usual.mean.numel()
    for dimension in range(usual.mean.dim()):
        sums = product.sum(dimension + 1, keepdim=True).square().flatten(1).sum(1)
        figures[SHARED.format(dimension)] = sums / squares
    return _Figures(figures, Variation.of(residual))


def _at_extremes(values: torch.Tensor, usual: _Usual) -> torch.Tensor:
    """Where elements have their smallest or largest value, up to rounding: of a dropout, everywhere."""
    size = torch.maximum(usual.low.abs(), usual.high.abs())
    near = max(ROUNDING_RESIDUAL, 8 * torch.finfo(values.dtype).eps) * (size + size.square().mean().sqrt())
    return ((values - usual.low).abs() <= near) | ((values - usual.high).abs() <= near)


def _parts(case: Case) -> list[TensorKey]:
    tables: tuple[Table, ...] = ("outputs", "buffers")
    return [(table, name) for table in tables for name in getattr(case, table) if not case.comparable(table, name)]


def _runs(candidate: Candidate, case: Case, grad: bool, times: int) -> dict[TensorKey, torch.Tensor]:
    """A sample of each part over forwards on the same inputs and state: (runs, *sample) in float64.

    There are `times` as many of small outputs without buffers.
    """
    parts = _parts(case)
    nbytes = RUNS * sum(expected.reference64.numel() * expected.dtype.itemsize for expected in case.outputs.values())
    small = nbytes <= LARGE_BYTES
    # Only the last forward of a job leaves its buffers.
    of_a_job = RUNS // 4 if small and all(table == "outputs" for table, _ in parts) else 1
    runs = RUNS * (times if of_a_job > 1 and 2 * times * nbytes <= LARGE_BYTES else 1) if small else RUNS // 4
    samples: dict[TensorKey, list[torch.Tensor]] = {part: [] for part in parts}
    for _ in range(runs // of_a_job):
        result = _job(candidate, case, grad, of_a_job)
        for turn in range(of_a_job):
            for table, name in parts:
                theirs = candidate.buffers(case).get(name)
                source = p.output_source(turn, name) if table == "outputs" else p.state_source(MODEL, theirs)
                value = result.sealed.get(source)
                due = getattr(case, table)[name].shape
                if value is None:
                    value = torch.full(due, math.nan, device=backend(candidate.device).torch_device)
                elif table == "buffers":
                    value = candidate.taken(case, name, value)
                samples[table, name].append(_sample(reals(value), case.seed))
    return {part: torch.stack(values) for part, values in samples.items()}


def _job(candidate: Candidate, case: Case, grad: bool, forwards: int) -> JobResult:
    """A job of several forwards, of which the first alone sets a seed: a generator made from it repeats itself."""
    job, seed = candidate.script(case), chance.new_seed()
    for turn in range(forwards):
        candidate.reset_buffers(job, case)
        job.put_inputs("a", case.inputs, requires_grad=grad)
        job.step(forward_step(case, tape=str(turn), grad=grad, seed=None if turn else seed))
        export_outputs(job, case, str(turn))
    export_buffers(job, candidate, case)
    job.step(p.Drop())
    return candidate.run(job, "forward", f"repeated forwards of {case.where}")


def _sample(value: torch.Tensor, seed: int) -> torch.Tensor:
    """All of a tensor, or of a large one positions along each dimension that the seed draws: RUNS fit LARGE_BYTES."""
    value, generator = value if value.dim() else value[None], torch.Generator().manual_seed(seed)
    share = (LARGE_BYTES / value.element_size() / RUNS / max(value.numel(), 1)) ** (1 / value.dim())
    for dimension, extent in enumerate(value.shape if share < 1 else ()):
        positions = torch.randperm(extent, generator=generator)[: math.ceil(share * extent)]
        value = value.index_select(dimension, positions.to(value.device))
    return value
