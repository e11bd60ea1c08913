"""What else a candidate's answers are held against: the reference on other inputs, or on the same ones otherwise."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.executor import JobBuilder, TensorSpec
from grader.grading.compare import tolerance
from grader.grading.oracle import input_structure
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import draw_inputs, is_float, perturbed, perturbed_state
from grader.grading.oracle.evaluation import MODEL, MODEL64, Evaluation, evaluate, forward_each
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.large import is_large
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.trackers import Trackers, track


def edited(oracle: Oracle, case: Case) -> Case:
    """The same case with a few elements of each float input replaced; outputs only, by the same parameters."""

    def ask() -> Case:
        of = structures(oracle, case)
        inputs = [of[i].edited(value) if is_float(value) else value for i, value in enumerate(case.inputs)]
        try:
            return replace(case, inputs=tuple(inputs), outputs=outputs_for(oracle, case, inputs))
        except ProblemError:  # a matrix that is not positive definite, say
            return case

    return oracle.remember(("edited", case.seed, case.training), ask)


def structures(oracle: Oracle, case: Case) -> dict[int, Structure]:
    """Of each tensor among the forward's arguments, by its position."""

    def ask() -> dict[int, Structure]:
        variant = oracle.module.variants[case.variant]
        others = [
            draw_inputs(variant, oracle.device, secrets.randbits(62))[1] for _ in range(input_structure.DRAWS - 1)
        ]
        return {
            index: Structure([value for value in values if isinstance(value, torch.Tensor)])
            for index, values in enumerate(zip(case.inputs, *others, strict=True))
            if isinstance(values[0], torch.Tensor)
        }

    return oracle.remember(("structures", case.seed), ask)


def without_gradients(oracle: Oracle, case: Case) -> Case:
    """The same case with its buffers as a forward without a graph leaves them; a reference may move them otherwise."""

    def ask() -> Case:
        trackers = _forwards(oracle, case, case.inputs)
        buffers = trackers.expected("buffers", lambda _: 1.0)
        return replace(case, buffers={name: of.around(buffers[name].reference64) for name, of in case.buffers.items()})

    return oracle.remember(("without gradients", case.seed, case.training), ask)


def _forwards(oracle: Oracle, case: Case, inputs: Sequence[object]) -> Trackers:
    """Of the case's parameters and other inputs; exact values, and eager PyTorch's error."""
    traits = oracle.traits(case)

    def run(
        model: str, inputs: Sequence[object], state: Mapping[str, torch.Tensor], *, streamed: bool = False
    ) -> Evaluation:
        oracle.ready(case, model)
        return evaluate(oracle, model, traits, inputs, state, {}, (), case.training, streamed=streamed)

    return track(run, traits, inputs, case.state, oracle.device, perturbed_runs=0)[1]


def outputs_for(oracle: Oracle, case: Case, inputs: Sequence[object]) -> dict[str, tolerance.Expected]:
    """What the same parameters make of other inputs of the same sizes, at least as exactly as the case has them."""
    return outputs_for_each(oracle, case, [inputs])[0]


def outputs_for_each(
    oracle: Oracle, case: Case, others: Sequence[Sequence[object]]
) -> list[dict[str, tolerance.Expected]]:
    """`outputs_for` of several inputs, in one job unless one is large. Raises ProblemError."""
    if any(is_large(value) for inputs in others for value in inputs):
        return [_as_exact_as(case, _forwards(oracle, case, inputs)) for inputs in others]
    traits = oracle.traits(case)
    models = (MODEL, MODEL64) if traits.has_float64 else (MODEL,)
    oracle.ready(case, models[-1])
    eager, *exact = forward_each(oracle, models, traits, others, case.state, case.training)
    if not exact:
        return [_as_exact_as(case, Trackers(one, None, has_float64=False)) for one in eager]

    def run(inputs: Sequence[object], ulps: float) -> Evaluation:
        oracle.ready(case)
        device = oracle.device
        moved, state = perturbed(inputs, device, ulps), perturbed_state(case.state, device, ulps)
        return evaluate(oracle, MODEL, traits, moved, state, {}, (), case.training)

    return [
        _as_exact_as(case, Trackers(one, other, has_float64=True, run=partial(run, inputs)))
        for one, other, inputs in zip(eager, exact[0], others, strict=True)
    ]


def _as_exact_as(case: Case, trackers: Trackers) -> dict[str, tolerance.Expected]:
    found = {}
    for name, own in trackers.expected("outputs", lambda _: 1.0).items():
        of = case.outputs[name]
        found[name] = replace(
            own,
            error_l2=max(of.error_l2, own.error_l2),
            error_max=max(of.error_max, own.error_max),
            reduction_length=of.reduction_length,
        )
    return found


def element_gradients(
    oracle: Oracle, case: Case, output: str, elements: Sequence[int]
) -> list[dict[int, torch.Tensor]]:
    """By argument, the gradient of each of these elements of an output; empty where it has none."""
    floats = [i for i, value in enumerate(case.inputs) if is_float(value)]
    if output not in case.cotangents or not floats:
        return [{} for _ in elements]
    oracle.ready(case)
    script = JobBuilder(oracle.worker, oracle.device)
    script.set_state(MODEL, case.state)
    script.put_inputs("a", case.inputs, requires_grad=True)
    script.step(
        p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, grad=True, clone_inputs=case.clone_inputs)
    )
    cotangent = case.cotangents[output]
    for turn, element in enumerate(elements):
        one = torch.zeros_like(cotangent, memory_format=torch.contiguous_format)
        one.view(-1)[element] = 1
        script.step(
            p.Backward(
                tape="a",
                grads=f"g{turn}",
                cotangents=script.cotangents({output: one}),
                wrt=tuple(f"input[{i}]" for i in floats),
                retain_graph=True,
            )
        )
        specs = {i: TensorSpec(tuple(case.operand(f"input[{i}]").shape), torch.float32) for i in floats}
        script.export({f"grad:g{turn}:input[{i}]": spec for i, spec in specs.items()})
    script.step(p.Drop())
    sealed = oracle.run(script).sealed
    sources = [{i: f"grad:g{turn}:input[{i}]" for i in floats} for turn in range(len(elements))]
    return [{i: sealed[source] for i, source in of.items() if source in sealed} for of in sources]


def redrawn(oracle: Oracle, case: Case) -> dict[str, torch.Tensor]:
    """The outputs for other inputs by the case's parameters, in float64 where the reference runs in it."""
    _, inputs = draw_inputs(oracle.module.variants[case.variant], oracle.device, secrets.randbits(62))
    traits = oracle.traits(case)
    model = MODEL64 if traits.has_float64 else MODEL
    oracle.ready(case, model)
    return dict(evaluate(oracle, model, traits, inputs, case.state, {}, (), case.training).outputs)


def takes_strided(oracle: Oracle, case: Case) -> bool:
    """The reference gives the same outputs for inputs that are not contiguous."""

    def ask() -> bool:
        oracle.ready(case)
        script = JobBuilder(oracle.worker, oracle.device)
        script.set_state(MODEL, case.state)
        script.put_inputs("a", case.inputs, layout="strided")
        script.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
        script.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
        script.step(p.Drop())
        finding = oracle.run(script, tolerate_failure=True)
        return finding.failure is None and all(
            tolerance.check(of, finding.sealed[f"output:a:{name}"]).status == "passed"
            for name, of in case.outputs.items()
        )

    return oracle.remember(("strided", case.seed, case.training), ask)


def keeps_outputs(oracle: Oracle, case: Case) -> bool:
    """What the reference returned is the same after the next forwards: it is no state of the model's."""

    def ask() -> bool:
        oracle.ready(case)
        script = JobBuilder(oracle.worker, oracle.device)
        script.set_state(MODEL, case.state)
        add_forwards(script, oracle, case)
        finding = oracle.run(script, tolerate_failure=True)
        return finding.failure is None and all(
            tolerance.check(of, finding.sealed[f"output:a:{name}"]).status == "passed"
            for name, of in case.outputs.items()
        )

    return oracle.remember(("keeps outputs", case.seed, case.training), ask)


def add_forwards(script: JobBuilder, oracle: Oracle, case: Case) -> None:
    """One of the case and two of other inputs, at addresses of their own; then what the first returned is brought back.

    All other: behind a ReLU a few elements may change nothing.
    """
    _, others = draw_inputs(oracle.module.variants[case.variant], oracle.device, secrets.randbits(62))
    for key, inputs in (("a", case.inputs), ("b", others), ("c", others)):
        script.put_inputs(key, inputs)
        script.step(p.Forward(model=MODEL, inputs=key, tape=key, training=case.training))
    script.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
    script.step(p.Drop(empty_cache=False))
