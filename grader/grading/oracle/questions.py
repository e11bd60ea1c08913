"""The reference's answers on variations of a case: other inputs, other layouts, repeated calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader import protocol as p
from grader.errors import ProblemError, ReferenceRefused
from grader.executor import JobBuilder, JobResult, TensorSpec
from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.oracle.case import Case, export_outputs
from grader.grading.oracle.evaluation import MODEL, MODEL64, Pass
from grader.grading.oracle.first_look import outputs_alike
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.oracle import Oracle, remembered
from grader.grading.oracle.perturbed_runs import perturbed_runs
from grader.grading.oracle.trackers import Trackers
from grader.grading.oracle.values import OTHER_DRAWS, is_differentiable, is_float


@remembered
def edited(oracle: Oracle, case: Case) -> Case:
    """The case with a few elements of each input but integers replaced, and the outputs for these inputs."""
    of = structures(oracle, case)
    inputs = [of[i].edited(value) if is_differentiable(value) else value for i, value in enumerate(case.inputs)]
    try:
        return replace(case, inputs=tuple(inputs), outputs=outputs_for(oracle, case, inputs))
    except ProblemError:  # for example, a matrix that is no longer positive definite
        return case


@remembered
def structures(oracle: Oracle, case: Case) -> dict[int, Structure]:
    """The structure of each tensor argument of the forward but floats of eight bits, by position."""
    return {
        index: Structure([value for value in values if isinstance(value, torch.Tensor)])
        for index, values in enumerate(zip(case.inputs, *_other_draws(oracle, case), strict=True))
        if isinstance(values[0], torch.Tensor) and (is_float(values[0]) or not values[0].is_floating_point())
    }


def _other_draws(oracle: Oracle, case: Case) -> list[list[object]]:
    """OTHER_DRAWS further draws of the case's inputs."""
    return [oracle.draw(case.variant)[1] for _ in range(OTHER_DRAWS)]


@remembered
def without_gradients(oracle: Oracle, case: Case) -> Case:
    """The same case with its buffers after a forward under no_grad, which may update them in another way."""
    after = buffers_for(oracle, case)
    return replace(case, buffers={name: of.around(after[name].reference64) for name, of in case.buffers.items()})


def buffers_for(oracle: Oracle, case: Case) -> dict[str, Expected]:
    """The expected buffers after a forward under no_grad of a case with other parameters or buffers."""
    (trackers,) = _forwards(oracle, case, [case.inputs])
    return trackers.expected("buffers", lambda _: 1.0)


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
        {**found.outputs, **{f"buffer {name}": of for name, of in found.buffers.items() if name not in buffers}}
        for found in oracle.ask(case, passes)
    ]
    return all(outputs_alike(one, other) for one, other in zip(tables[::2], tables[1::2], strict=True))


def _fractional(value: torch.Tensor) -> bool:
    return value.dtype is torch.bool or value.is_floating_point() or value.is_complex()


def outputs_for(oracle: Oracle, case: Case, inputs: Sequence[object]) -> dict[str, Expected]:
    """The expected outputs for other inputs of the same sizes, with at least the case's baseline error."""
    return outputs_for_each(oracle, case, [inputs])[0]


def outputs_for_each(oracle: Oracle, case: Case, others: Sequence[Sequence[object]]) -> list[dict[str, Expected]]:
    """`outputs_for` each of several inputs. Raises ProblemError."""
    return [with_case_errors(case, trackers) for trackers in _forwards(oracle, case, others)]


def _forwards(oracle: Oracle, case: Case, others: Sequence[Sequence[object]]) -> Iterator[Trackers]:
    """Forwards with the case's parameters on other inputs: float64 values and the baseline error for each."""
    return compared(oracle, case, [Pass(MODEL, inputs, case.state, training=case.training) for inputs in others])


def compared(oracle: Oracle, case: Case, passes: Sequence[Pass]) -> Iterator[Trackers]:
    """Passes of the case's model, each in float32 and, where they matter, in float64 and TensorFloat-32."""
    exactly, ask = oracle.runs_float64(case), partial(oracle.ask, case)
    rounds = exactly and oracle.precision.meaning.tf32 and oracle.traits(case).flops > 0

    def runs_of(one: Pass) -> Iterator[Pass]:
        yield one
        if exactly:
            yield replace(one, model=MODEL64)
        if rounds:
            yield from (one.in_tf32(), one.in_tf32(cut=True))

    results = ask(run for one in passes for run in runs_of(one))
    for one in passes:
        eager = next(results)
        exact = next(results) if exactly else None
        again = partial(perturbed_runs, ask, one.in_tf32() if rounds else one) if exact else None
        tied, asserts = one.inputs if one.wrt else (), oracle.traits(case).asserts
        trackers = Trackers(eager, exact, has_float64=exactly, again=again, inputs=tied, asserts=asserts)
        trackers.rounds_operands = rounds
        if rounds:
            trackers.add_in_tf32(results)
        yield trackers


def with_case_errors(case: Case, trackers: Trackers) -> dict[str, Expected]:
    """The outputs with the case's reduction length and strictness, and with its baseline error at least."""
    outputs = {}
    for name, own in trackers.expected("outputs", lambda _: 1.0).items():
        of = case.outputs[name]
        outputs[name] = replace(
            own,
            error_l2=max(of.error_l2, own.error_l2),
            error_max=max(of.error_max, own.error_max),
            reduction_length=of.reduction_length,
            strict=of.strict,
        )
    return outputs


def element_gradients(
    oracle: Oracle, case: Case, output: str, elements: Sequence[int]
) -> list[dict[int, torch.Tensor]]:
    """The gradient of each of these elements of an output, by argument; empty if it has none."""
    floats = [i for i, value in enumerate(case.inputs) if is_float(value)]
    if output not in case.cotangents or not floats:
        return [{} for _ in elements]
    job = script(oracle, case)
    add_graph(job, case)
    cotangent = case.cotangents[output]
    for turn, element in enumerate(elements):
        one = torch.zeros_like(cotangent, memory_format=torch.contiguous_format)
        one.view(-1)[element] = 1
        job.step(
            p.Backward(
                tape="a",
                grads=f"g{turn}",
                cotangents=job.cotangents({output: one}),
                wrt=tuple(f"input[{i}]" for i in floats),
                retain_graph=True,
            )
        )
        job.export({f"grad:g{turn}:input[{i}]": TensorSpec.like(case.operand(f"input[{i}]")) for i in floats})
    job.step(p.Drop())
    sealed = oracle.run(job).sealed
    sources = [{i: f"grad:g{turn}:input[{i}]" for i in floats} for turn in range(len(elements))]
    return [{i: sealed[source] for i, source in of.items() if source in sealed} for of in sources]


@remembered
def trivial_outputs(oracle: Oracle, case: Case) -> str | None:
    """Which outputs would pass without being computed, or None. Raises ProblemError."""
    model = MODEL64 if oracle.runs_float64(case) else MODEL
    passes = (Pass(model, inputs, case.state, training=case.training) for inputs in _other_draws(oracle, case))
    others = [run.outputs for run in oracle.ask(case, passes)]
    if all(_passes(case, {name: _level(value) for name, value in other.items()}) for other in others):
        values = (_level(value).flatten()[0].item() for value in others[0].values() if value.numel())
        shown = ", ".join(f"{value:.6g}" for value in values)
        return f"outputs filled with a constant pass the tolerance: {shown}"
    varies = any(not of.fixed for of in structures(oracle, case).values())
    if varies and all(_passes(case, other) for other in others):
        return "other inputs give the same outputs within the tolerance: stored outputs pass"
    return None


def _passes(case: Case, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether a submission that returned these outputs would pass, wherever the reference is smooth.

    Otherwise outputs for other inputs would each ask for the runs behind the spread.
    """
    return all(
        outputs[name].shape == expected.reference64.shape
        and tolerance.passes(replace(expected, spread=None), outputs[name])
        for name, expected in case.outputs.items()
    )


def _level(value: torch.Tensor) -> torch.Tensor:
    """The tensor filled with the constant that fits best: the mean, or the most frequent integer."""
    if not value.numel():
        return value
    middle = value.mean() if value.is_floating_point() or value.is_complex() else value.flatten().mode().values
    return middle.expand(value.shape)


@remembered
def takes_strided(oracle: Oracle, case: Case) -> bool:
    """Whether the reference gives the same outputs for inputs that are not contiguous."""
    job = script(oracle, case)
    job.put_inputs("a", case.inputs, layout="strided")
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
    export_outputs(job, case, "a")
    job.step(p.Drop())
    return _are_right(case, oracle.run(job, tolerate_failure=True), ["a"])


@remembered
def keeps_outputs(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's outputs keep their values during later forwards.

    Otherwise they are the model's own state.
    """
    job = script(oracle, case)
    add_forwards(job, oracle, case)
    return _are_right(case, oracle.run(job, tolerate_failure=True), map(tape_of, case.modes))


def _are_right(case: Case, result: JobResult, tapes: Iterable[str]) -> bool:
    """Whether nothing failed, and the outputs of these tapes are the case's."""
    return result.failure is None and all(
        tolerance.passes(of, result.sealed[f"output:{tape}:{name}"])
        for tape in tapes
        for name, of in case.outputs.items()
    )


@remembered
def differentiates_twice(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's gradients can be differentiated again."""
    job = script(oracle, case)
    add_graph(job, case)
    cotangents = job.cotangents(case.cotangents)
    job.step(p.Backward(tape="a", grads="a", cotangents=cotangents, wrt=case.wrt, double="all"))
    job.step(p.Drop())
    result = oracle.run(job, tolerate_failure=True)
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


def script(oracle: Oracle, case: Case) -> JobBuilder:
    """A job on the reference's model, with the case's parameters and buffers in place."""
    oracle.ready(case)
    job = JobBuilder(oracle.worker, oracle.device)
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
    _, others = oracle.draw(case.variant)
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
