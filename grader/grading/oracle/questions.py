"""The reference's results for variations of a case: other inputs, other layouts, repeated calls."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.executor import JobBuilder, TensorSpec
from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import OTHER_DRAWS, draw_inputs
from grader.grading.oracle.evaluation import MODEL, MODEL64, Pass
from grader.grading.oracle.first_look import outputs_alike
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.noise import is_float
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.trackers import Trackers, perturbed_runs


def edited(oracle: Oracle, case: Case) -> Case:
    """The case with a few elements of each float input replaced, and the outputs for these inputs."""

    def run() -> Case:
        of = structures(oracle, case)
        inputs = [of[i].edited(value) if is_float(value) else value for i, value in enumerate(case.inputs)]
        try:
            return replace(case, inputs=tuple(inputs), outputs=outputs_for(oracle, case, inputs))
        except ProblemError:  # for example, a matrix that is no longer positive definite
            return case

    return oracle.remember(("edited", case.seed, case.training), run)


def with_parameters_of(oracle: Oracle, case: Case, other: Case) -> Case:
    """The case with the parameters and buffers of another of its sizes, and the outputs for these."""

    def run() -> Case:
        mixed = replace(case, state=other.state)
        try:
            return replace(mixed, outputs=outputs_for(oracle, mixed, case.inputs))
        except ProblemError:
            return case

    return oracle.remember(("parameters of", case.seed, other.seed, case.training), run)


def structures(oracle: Oracle, case: Case) -> dict[int, Structure]:
    """The structure of each tensor argument of the forward but floats of eight bits, by position."""

    def run() -> dict[int, Structure]:
        variant = oracle.module.variants[case.variant]
        others = [draw_inputs(variant, oracle.device, secrets.randbits(62))[1] for _ in range(OTHER_DRAWS)]
        return {
            index: Structure([value for value in values if isinstance(value, torch.Tensor)])
            for index, values in enumerate(zip(case.inputs, *others, strict=True))
            if isinstance(values[0], torch.Tensor) and (is_float(values[0]) or not values[0].is_floating_point())
        }

    return oracle.remember(("structures", case.seed), run)


def without_gradients(oracle: Oracle, case: Case, *, again: bool = False) -> Case:
    """The same case with its buffers after a forward under no_grad, which may update them in another way.

    `again` asks anew, for a case that differs from the one that the answer is remembered for.
    """

    def run() -> Case:
        (trackers,) = _forwards(oracle, case, [case.inputs])
        buffers = trackers.expected("buffers", lambda _: 1.0)
        return replace(case, buffers={name: of.around(buffers[name].reference64) for name, of in case.buffers.items()})

    return run() if again else oracle.remember(("without gradients", case.seed, case.training), run)


def buffers_for(oracle: Oracle, case: Case) -> dict[str, Expected]:
    """The expected buffers after a forward of a case with other parameters or buffers."""
    (trackers,) = _forwards(oracle, case, [case.inputs])
    return trackers.expected("buffers", lambda _: 1.0)


def only_count(oracle: Oracle, case: Case, buffers: Sequence[str]) -> bool:
    """Whether these buffers are single integers that nothing else depends on, in train() or in eval().

    A BatchNorm's `num_batches_tracked` is one, unless its momentum is None.
    """

    def run() -> bool:
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

    return oracle.remember(("only count", case.seed, case.training, tuple(buffers)), run)


def _fractional(value: torch.Tensor) -> bool:
    return value.dtype is torch.bool or value.is_floating_point() or value.is_complex()


def outputs_for(oracle: Oracle, case: Case, inputs: Sequence[object]) -> dict[str, Expected]:
    """The expected outputs for other inputs of the same sizes, with at least the case's baseline error."""
    return outputs_for_each(oracle, case, [inputs])[0]


def outputs_for_each(oracle: Oracle, case: Case, others: Sequence[Sequence[object]]) -> list[dict[str, Expected]]:
    """`outputs_for` each of several inputs. Raises ProblemError."""
    return [_with_case_errors(case, trackers) for trackers in _forwards(oracle, case, others)]


def _forwards(oracle: Oracle, case: Case, others: Sequence[Sequence[object]]) -> Iterator[Trackers]:
    """Forwards with the case's parameters on other inputs: float64 values and the baseline error for each."""
    traits, ask = oracle.traits(case), partial(oracle.ask, case)
    models = (MODEL, MODEL64) if traits.has_float64 else (MODEL,)
    passes = [Pass(MODEL, inputs, case.state, training=case.training) for inputs in others]
    results = ask(replace(one, model=model) for one in passes for model in models)
    rounds = oracle.precision.meaning.tf32 and traits.flops > 0
    for one in passes:
        eager = next(results)
        exact = next(results) if traits.has_float64 else None
        again = partial(perturbed_runs, ask, one.in_tf32() if rounds else one) if exact else None
        trackers = Trackers(eager, exact, has_float64=traits.has_float64, again=again)
        trackers.rounds_operands = rounds
        yield trackers


def _with_case_errors(case: Case, trackers: Trackers) -> dict[str, Expected]:
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
    job.put_inputs("a", case.inputs, requires_grad=True)
    job.step(
        p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, grad=True, clone_inputs=case.clone_inputs)
    )
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
        operands = {i: case.operand(f"input[{i}]") for i in floats}
        specs = {i: TensorSpec(tuple(value.shape), value.dtype) for i, value in operands.items()}
        job.export({f"grad:g{turn}:input[{i}]": spec for i, spec in specs.items()})
    job.step(p.Drop())
    sealed = oracle.run(job).sealed
    sources = [{i: f"grad:g{turn}:input[{i}]" for i in floats} for turn in range(len(elements))]
    return [{i: sealed[source] for i, source in of.items() if source in sealed} for of in sources]


def redrawn(oracle: Oracle, case: Case) -> list[Mapping[str, torch.Tensor]]:
    """The outputs for OTHER_DRAWS newly drawn inputs and the case's parameters, in float64 if available."""
    variant = oracle.module.variants[case.variant]
    draws = [draw_inputs(variant, oracle.device, secrets.randbits(62))[1] for _ in range(OTHER_DRAWS)]
    model = MODEL64 if oracle.traits(case).has_float64 else MODEL
    passes = (Pass(model, inputs, case.state, training=case.training) for inputs in draws)
    return [run.outputs for run in oracle.ask(case, passes)]


def takes_strided(oracle: Oracle, case: Case) -> bool:
    """Whether the reference gives the same outputs for inputs that are not contiguous."""

    def run() -> bool:
        job = script(oracle, case)
        job.put_inputs("a", case.inputs, layout="strided")
        job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
        job.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
        job.step(p.Drop())
        result = oracle.run(job, tolerate_failure=True)
        return result.failure is None and all(
            tolerance.check(of, result.sealed[f"output:a:{name}"]).status == "passed"
            for name, of in case.outputs.items()
        )

    return oracle.remember(("strided", case.seed, case.training), run)


def keeps_outputs(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's outputs keep their values during later forwards.

    Otherwise they are the model's own state.
    """

    def run() -> bool:
        job = script(oracle, case)
        add_forwards(job, oracle, case)
        result = oracle.run(job, tolerate_failure=True)
        return result.failure is None and all(
            tolerance.check(of, result.sealed[f"output:{tape_of(training)}:{name}"]).status == "passed"
            for name, of in case.outputs.items()
            for training in case.modes
        )

    return oracle.remember(("keeps outputs", case.seed, case.training), run)


def differentiates_twice(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's gradients can be differentiated again."""

    def run() -> bool:
        job = script(oracle, case)
        job.put_inputs("a", case.inputs, requires_grad=True)
        job.step(
            p.Forward(
                model=MODEL, inputs="a", tape="a", training=case.training, grad=True, clone_inputs=case.clone_inputs
            )
        )
        cotangents = job.cotangents(case.cotangents)
        job.step(p.Backward(tape="a", grads="a", cotangents=cotangents, wrt=case.wrt, double=True))
        job.step(p.Drop())
        result = oracle.run(job, tolerate_failure=True)
        answers = [one for one in result.evidence.results if isinstance(one, p.Gradients)]
        return result.failure is None and bool(answers[0].double_backward)

    return oracle.remember(("differentiates twice", case.variant, case.training), run)


def script(oracle: Oracle, case: Case) -> JobBuilder:
    """A job on the reference's model, with the case's parameters and buffers in place."""
    oracle.ready(case)
    job = JobBuilder(oracle.worker, oracle.device)
    job.set_state(MODEL, case.state)
    return job


def add_forwards(job: JobBuilder, oracle: Oracle, case: Case) -> None:
    """Add a forward on the case's inputs and two on others to a job; export the outputs of the first.

    In each mode of the case, under its name. The other inputs differ in all elements: behind a ReLU, a few changed
    elements may have no effect.
    """
    _, others = draw_inputs(oracle.module.variants[case.variant], oracle.device, secrets.randbits(62))
    for training in case.modes:
        tape = tape_of(training)
        for key, inputs in ((tape, case.inputs), ("b", others), ("c", others)):
            job.put_inputs(key, inputs)
            job.step(p.Forward(model=MODEL, inputs=key, tape=key, training=training))
        job.export({f"output:{tape}:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
        job.step(p.Drop(keep_bytes=None))


def tape_of(training: bool) -> str:
    """The tape of `add_forwards` in this mode."""
    return "train" if training else "eval"
