"""Runs the reference for one case: eager, in float64 and on perturbed operands, and keeps the errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain

from grader.grading import chance
from grader.grading.compare import nonsmooth
from grader.grading.compare.blocks import LARGE_BYTES, is_large
from grader.grading.oracle.case import nbytes_of
from grader.grading.oracle.evaluation import MODEL, MODEL64, Ask, Evaluation, Pass
from grader.grading.oracle.halves import Halves
from grader.grading.oracle.perturbed_runs import PERTURBED_RUNS, perturbed_passes, perturbed_runs
from grader.grading.oracle.run_costs import Pace, paced_runs
from grader.grading.oracle.trackers import Trackers
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import is_float
from grader.machine.backends import backend
from grader.verdict.models import Device

STRICT_SHARE = 0.125
"""Share of a slow reference's cases in which `Expected.strict` is asked. A choice: those sixteen runs take longer than
all others together, and nobody may count on their absence."""


def track(
    ask: Ask,
    plain: Pass,
    traits: Traits,
    device: Device,
    *,
    pace: Pace,
    affords_float64: Callable[[Evaluation], bool] | None = None,
    halves: Callable[[Pass], Halves | None] | None = None,
    tf32: bool = False,
) -> tuple[Evaluation, Trackers]:
    """An eager run, `plain`, and the errors of it and of perturbed runs against the float64 reference.

    `ask` runs the reference now, and again when a candidate's error may be explained by non-smooth points. If
    `affords_float64` returns False, the values of the eager run replace the float64 values; `halves` gives the halves
    of a float64 run that may be made in two. `pace` gets the times of the runs; a slow reference has one perturbed run.
    `tf32` adds two in it. On a GPU, the eager and the float64 run are asked alone, as they are where one job cannot
    hold all runs.
    """

    def alone(one: Pass, parts: Halves | None = None) -> Evaluation:
        started = pace.clock()
        result = next(ask([one])) if parts is None else parts.run()
        pace.note(one.model, started)
        return result

    if not traits.has_float64:
        eager = alone(plain)
        return eager, Trackers(eager, None, has_float64=False)
    rounds, large = tf32 and traits.flops > 0, any(map(is_large, plain.inputs))
    again = partial(perturbed_runs, ask, plain.in_tf32() if rounds else plain)
    # Each run of millions of elements has as many near non-smooth points as another. Without parameters, no run is
    # made, because a perturbed copy of large inputs takes too much memory.
    count = int(any(map(is_float, plain.state.values()))) if large else PERTURBED_RUNS
    exact, reference64 = replace(plain, model=MODEL64), None
    others: Iterable[Evaluation]
    nbytes = nbytes_of(plain.sent().values()) + plain.returned_bytes(traits)
    joined = (count + 2) * nbytes < LARGE_BYTES and not backend(device).own_memory
    if joined and not large and affords_float64 is None:
        started = pace.clock()
        moved = perturbed_passes(plain, range(count), nonsmooth.PERTURBATION_ULPS)
        eager, reference64, *others = ask(chain([plain, exact], moved))
        pace.note(MODEL, started, runs=count + 2)
    else:
        eager = alone(plain)
        if affords_float64 is None or affords_float64(eager):
            reference64 = alone(exact, halves and halves(exact))
        others = paced_runs(again, count, pace)
    trackers = Trackers(eager, reference64, has_float64=True, again=again, inputs=plain.inputs, asserts=traits.asserts)
    for other in others:
        trackers.add(other)
    if rounds:
        trackers.add_in_tf32(alone(plain.in_tf32(cut=cut)) for cut in (False, True))
    trackers.rounds_operands = rounds
    # In a deep network most checks would make those runs, since rounding alone exceeds what needs none.
    trackers.strict = not pace.is_slow() or chance.draw.random() < STRICT_SHARE
    return eager, trackers


def track_finite(run: Callable[[Pass], tuple[Evaluation, Trackers]], plain: Pass) -> tuple[Pass, Evaluation, Trackers]:
    """The pass, and what `run` finds, which is `track`; grad_outputs are zero where outputs are infinite."""
    eager, trackers = run(plain)
    silenced = trackers.silenced(plain)
    return (plain, eager, trackers) if silenced is None else (silenced, *run(silenced))
