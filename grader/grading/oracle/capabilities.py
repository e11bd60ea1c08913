"""Capabilities of the reference: what it takes, keeps and differentiates, each a yes or no."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.executor import JobBuilder, JobResult
from grader.grading.compare import tolerance
from grader.grading.oracle.case import Case, export_outputs
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.first_look import outputs_alike
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import remembered


@remembered
def only_count(oracle: Oracle, case: Case, buffers: tuple[str, ...]) -> bool:
    """Whether these buffers are single integers that nothing else depends on, in train() or in eval().

    A BatchNorm's `num_batches_tracked` is one, unless its momentum is None.
    """
    if any(case.state[name].numel() != 1 or _fractional(case.state[name]) for name in buffers):
        return False
    counted = {**case.state, **{name: case.state[name] + 1 for name in buffers}}
    passes = [
        Pass(MODEL, case.inputs, state, training=training)
        for training in (True, False)
        for state in (case.state, counted)
    ]
    tables = [
        {**found.outputs, **{f"buffer {name}": value for name, value in found.buffers.items() if name not in buffers}}
        for found in oracle.ask(case, passes)
    ]
    return all(outputs_alike(one, other) for one, other in zip(tables[::2], tables[1::2], strict=True))


def _fractional(value: torch.Tensor) -> bool:
    return value.dtype is torch.bool or value.is_floating_point() or value.is_complex()


@remembered
def takes_strided(oracle: Oracle, case: Case) -> bool:
    """Whether the reference gives the same outputs for inputs that are not contiguous."""
    job = script(oracle, case)
    job.put_inputs("a", case.inputs, layout="strided")
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
    export_outputs(job, case, "a")
    job.step(p.Drop())
    return _are_right(case, oracle.process.run(job, tolerate_failure=True), ["a"])


@remembered
def keeps_outputs(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's outputs keep their values during later forwards.

    Otherwise they are the model's own state.
    """
    job = script(oracle, case)
    add_forwards(job, oracle, case)
    return _are_right(case, oracle.process.run(job, tolerate_failure=True), map(tape_of, case.modes))


def _are_right(case: Case, result: JobResult, tapes: Iterable[str]) -> bool:
    """Whether nothing failed, and the outputs of these tapes are the case's."""
    return result.failure is None and all(
        tolerance.passes(expected, result.sealed[p.output_source(tape, name)])
        for tape in tapes
        for name, expected in case.outputs.items()
    )


@remembered
def differentiates_twice(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's gradients can be differentiated again."""
    job = script(oracle, case)
    add_graph(job, case)
    cotangents = job.cotangents(case.cotangents)
    job.step(p.Backward(tape="a", grads="a", cotangents=cotangents, wrt=case.wrt, double="all"))
    job.step(p.Drop())
    result = oracle.process.run(job, tolerate_failure=True)
    return result.failure is None and bool(result.of(p.Gradients)[0].double_backward)


def differentiates_in_eval(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's backward runs in eval() too; cuDNN's for recurrent networks does not."""

    def ask() -> bool:
        try:
            next(oracle.ask(case, [replace(Pass.of(case), training=False)]))
        except ReferenceRefused:
            return False
        return True

    return not case.wrt or oracle.remember(("differentiates in eval", case.variant), ask)


@remembered
def outputs_may_change(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's backward runs all the same: it saves none of its outputs.

    Not asked of a slow reference, nor where it draws random numbers.
    """
    if not case.wrt or not case.values_comparable or oracle.is_slow(case):
        return False
    job = script(oracle, case)
    add_graph(job, case)
    job.step(p.Overwrite(tape="a"))
    job.step(p.Backward(tape="a", grads="a", cotangents=job.cotangents(case.cotangents), wrt=case.wrt))
    job.step(p.Drop())
    return oracle.process.run(job, tolerate_failure=True).failure is None


def script(oracle: Oracle, case: Case) -> JobBuilder:
    """A job on the reference's model, with the case's parameters and buffers in place."""
    oracle.models.ready(case)
    job = JobBuilder(oracle.process.worker, oracle.device)
    job.set_state(MODEL, case.state)
    return job


def add_graph(job: JobBuilder, case: Case) -> None:
    """Add a forward that can be differentiated; inputs and outputs stay under the key "a"."""
    job.put_inputs("a", case.inputs, requires_grad=True)
    job.step(
        p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, grad=True, clone_inputs=case.clone_inputs)
    )


def add_forwards(job: JobBuilder, oracle: Oracle, case: Case) -> None:
    """Add a forward on the case's inputs and some on others to a job; export the outputs of the first.

    In each mode of the case. The other inputs differ in all elements: behind a ReLU, a few may have no effect.
    """
    _, others = oracle.models.draw(case.variant)
    for training in case.modes:
        keys = (tape := tape_of(training), *("b", "c") * (1 if oracle.is_slow(case) else 4))  # buffers may form a ring
        for key, inputs in ((tape, case.inputs), ("b", others), ("c", others)):
            job.put_inputs(key, inputs)
        for key in keys:
            job.step(p.Forward(model=MODEL, inputs=key, tape=key, training=training))
        export_outputs(job, case, tape)
        job.step(p.Drop(keep_bytes=None))


def tape_of(training: bool) -> str:
    """The tape of `add_forwards` in this mode."""
    return "train" if training else "eval"
