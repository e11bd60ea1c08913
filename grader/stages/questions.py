"""What else a candidate's answers are held against: the reference on other inputs, or on the same ones otherwise."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.remote import Script, TensorSpec
from grader.stages import numerics, structure
from grader.stages.cases import Case
from grader.stages.drawing import draw_inputs, is_float
from grader.stages.evaluating import GOLDEN, MODEL, Evaluation, evaluate
from grader.stages.reference import ReferenceDesk
from grader.stages.structure import Structure
from grader.stages.trackers import Trackers, track


def edited(desk: ReferenceDesk, case: Case) -> Case:
    """The same case with a few elements of each float input replaced; outputs only, by the same parameters."""

    def ask() -> Case:
        of = structures(desk, case)
        inputs = [of[i].edited(value) if is_float(value) else value for i, value in enumerate(case.inputs)]
        try:
            return replace(case, inputs=tuple(inputs), outputs=outputs_for(desk, case, inputs))
        except ProblemError:  # a matrix that is not positive definite, say
            return case

    return desk.remember(("edited", case.seed, case.training), ask)


def structures(desk: ReferenceDesk, case: Case) -> dict[int, Structure]:
    """Of each tensor among the forward's arguments, by its position."""

    def ask() -> dict[int, Structure]:
        variant = desk.module.variants[case.variant]
        others = [draw_inputs(variant, desk.device, secrets.randbits(62))[1] for _ in range(structure.DRAWS - 1)]
        return {
            index: Structure([value for value in values if isinstance(value, torch.Tensor)])
            for index, values in enumerate(zip(case.inputs, *others, strict=True))
            if isinstance(values[0], torch.Tensor)
        }

    return desk.remember(("structures", case.seed), ask)


def without_gradients(desk: ReferenceDesk, case: Case) -> Case:
    """The same case with its buffers as a forward without a graph leaves them; a reference may move them otherwise."""

    def ask() -> Case:
        trackers = _forwards(desk, case, case.inputs)
        buffers = trackers.expected("buffers", lambda _: 1.0)
        return replace(case, buffers={name: of.around(buffers[name].golden) for name, of in case.buffers.items()})

    return desk.remember(("without gradients", case.seed, case.training), ask)


def _forwards(desk: ReferenceDesk, case: Case, inputs: Sequence[object]) -> Trackers:
    """Of the case's parameters and other inputs; exact values, and eager PyTorch's error."""
    traits = desk.traits(case)

    def run(model: str, inputs: Sequence[object], state: Mapping[str, torch.Tensor]) -> Evaluation:
        desk.ready(case)
        return evaluate(desk, model, traits, inputs, state, {}, (), case.training)

    return track(run, traits, inputs, case.state, desk.device, perturbed_runs=0)[1]


def outputs_for(desk: ReferenceDesk, case: Case, inputs: Sequence[object]) -> dict[str, numerics.Expected]:
    """What the same parameters make of other inputs of the same sizes, as exactly as the case has them at least."""
    trackers = _forwards(desk, case, inputs)
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
    desk: ReferenceDesk, case: Case, output: str, elements: Sequence[int]
) -> list[dict[int, torch.Tensor]]:
    """By argument, the gradient of each of these elements of an output; empty where it has none."""
    floats = [i for i, value in enumerate(case.inputs) if is_float(value)]
    if output not in case.cotangents or not floats:
        return [{} for _ in elements]
    desk.ready(case)
    script = Script(desk.worker, desk.device)
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
    sealed = desk.run(script).sealed
    sources = [{i: f"grad:g{turn}:input[{i}]" for i in floats} for turn in range(len(elements))]
    return [{i: sealed[source] for i, source in of.items() if source in sealed} for of in sources]


def redrawn(desk: ReferenceDesk, case: Case) -> dict[str, torch.Tensor]:
    """The outputs for other inputs by the case's parameters, in float64 where the reference runs in it."""
    _, inputs = draw_inputs(desk.module.variants[case.variant], desk.device, secrets.randbits(62))
    traits = desk.traits(case)
    model = GOLDEN if traits.has_float64 else MODEL
    return dict(evaluate(desk, model, traits, inputs, case.state, {}, (), case.training).outputs)


def takes_strided(desk: ReferenceDesk, case: Case) -> bool:
    """The reference gives the same outputs for inputs that are not contiguous."""

    def ask() -> bool:
        desk.ready(case)
        script = Script(desk.worker, desk.device)
        script.set_state(MODEL, case.state)
        script.put_inputs("a", case.inputs, layout="strided")
        script.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
        script.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
        script.step(p.Drop())
        finding = desk.run(script, tolerate_failure=True)
        return finding.failure is None and all(
            numerics.check(of, finding.sealed[f"output:a:{name}"]).status == "passed"
            for name, of in case.outputs.items()
        )

    return desk.remember(("strided", case.seed, case.training), ask)


def keeps_outputs(desk: ReferenceDesk, case: Case) -> bool:
    """What the reference returned is the same after the next forwards: it is no state of the model's."""

    def ask() -> bool:
        desk.ready(case)
        script = Script(desk.worker, desk.device)
        script.set_state(MODEL, case.state)
        add_forwards(script, desk, case)
        finding = desk.run(script, tolerate_failure=True)
        return finding.failure is None and all(
            numerics.check(of, finding.sealed[f"output:a:{name}"]).status == "passed"
            for name, of in case.outputs.items()
        )

    return desk.remember(("keeps outputs", case.seed, case.training), ask)


def add_forwards(script: Script, desk: ReferenceDesk, case: Case) -> None:
    """One of the case and two of other inputs, at addresses of their own; then what the first returned is brought back.

    All other: behind a ReLU a few elements may change nothing.
    """
    _, others = draw_inputs(desk.module.variants[case.variant], desk.device, secrets.randbits(62))
    for key, inputs in (("a", case.inputs), ("b", others), ("c", others)):
        script.put_inputs(key, inputs)
        script.step(p.Forward(model=MODEL, inputs=key, tape=key, training=case.training))
    script.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
    script.step(p.Drop(empty_cache=False))
