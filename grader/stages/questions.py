"""What else a candidate's answers are held against: the reference on other inputs, or with a known mistake in it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from grader import protocol as p
from grader.remote import Script, TensorSpec
from grader.stages import numerics, passes, structure
from grader.stages.cases import Case
from grader.stages.drawing import draw_inputs, is_float
from grader.stages.evaluating import GOLDEN, MODEL, Evaluation, evaluate
from grader.stages.reference import ReferenceDesk
from grader.stages.structure import Structure
from grader.stages.trackers import Trackers, track

SHORT_MS = 0.1
"""Of an operation. In one process a launch costs a GPU 0.1 us more than in another: a thousandth of this."""


def edited(desk: ReferenceDesk, case: Case) -> Case:
    """The same case with a few elements of each float input replaced; outputs only, by the same parameters."""

    def ask() -> Case:
        of = structures(desk, case)
        inputs = [of[i].edited(value) if is_float(value) else value for i, value in enumerate(case.inputs)]
        return replace(case, inputs=tuple(inputs), outputs=outputs_for(desk, case, inputs))

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
        add_forwards(script, case, edited(desk, case))
        finding = desk.run(script, tolerate_failure=True)
        return finding.failure is None and all(
            numerics.check(of, finding.sealed[f"output:a:{name}"]).status == "passed"
            for name, of in case.outputs.items()
        )

    return desk.remember(("keeps outputs", case.seed, case.training), ask)


def add_forwards(script: Script, case: Case, other: Case) -> None:
    """One of the case and two of another, at addresses of their own; then what the first returned is brought back."""
    for key, of in (("a", case), ("b", other), ("c", other)):
        script.put_inputs(key, of.inputs)
        script.step(p.Forward(model=MODEL, inputs=key, tape=key, training=case.training))
    script.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
    script.step(p.Drop(empty_cache=False))


def substituted(
    desk: ReferenceDesk, case: Case, substitute: Literal["gelu_tanh", "gelu_erf"]
) -> dict[str, numerics.Expected]:
    """The float64 outputs with a function replaced by its lookalike; empty where that changes nothing."""
    traits = desk.traits(case)
    if not traits.has_float64:
        return {}
    other = evaluate(
        desk, GOLDEN, traits, case.inputs, case.state, {}, (), case.training, substitute=substitute
    ).outputs
    changed = {name: value for name, value in other.items() if not torch.equal(value, case.outputs[name].golden)}
    return {name: case.outputs[name].around(value) for name, value in changed.items()}


def substituted_gradients(
    desk: ReferenceDesk,
    case: Case,
    substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach"],
    cotangents: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, numerics.Expected]:
    """The float64 gradients with a function replaced by its lookalike, or for other grad_outputs.

    Operands whose gradient that changes, by name; empty where the reference does not run in float64.
    """
    traits = desk.traits(case)
    if not traits.has_float64 or not case.values_comparable:
        return {}
    given = case.cotangents if cotangents is None else cotangents
    others = evaluate(
        desk, GOLDEN, traits, case.inputs, case.state, given, case.wrt, case.training, substitute=substitute
    ).gradients
    found = {}
    for name, value in others.items():
        expected = case.gradients[name]
        if value is None or (expected is not None and torch.equal(value, expected.golden)):
            continue
        if expected is None:
            label = case.operand_names[name]
            found[name] = numerics.Expected(label, tuple(value.shape), case.operand(name).dtype, value)
        else:
            found[name] = expected.around(value)
    return found


def shipped_error(desk: ReferenceDesk, case: Case, *, tf32: bool = True) -> Mapping[str, float]:
    """Relative error of eager PyTorch by the tensors' names; `tf32`: with its default, TensorFloat-32 in cuDNN."""
    return desk.remember(("shipped", case.seed, case.training, tf32), lambda: _shipped_error(desk, case, tf32))


def _shipped_error(desk: ReferenceDesk, case: Case, tf32: bool) -> dict[str, float]:
    run = evaluate(
        desk,
        MODEL,
        desk.traits(case),
        case.inputs,
        case.state,
        case.cotangents,
        case.wrt,
        case.training,
        tf32=tf32,
    )
    found = {}
    tables = ((case.outputs, run.outputs), (case.gradients, run.gradients))
    pairs = [(expected, values[name]) for table, values in tables for name, expected in table.items()]
    for expected, value in pairs:
        if expected is not None and value is not None and expected.dtype.is_floating_point:
            error = max(passes.yardstick(value, expected.golden)[0], expected.error_l2)
            found[expected.name] = error / max(expected.norm, 1e-300)
    return found


def work(desk: ReferenceDesk, case: Case) -> p.Counted:
    """Operations and mandatory memory of one forward and, where the case has cotangents, one backward."""
    return desk.remember(("work", case.seed, case.training), lambda: _work(desk, case))


def _work(desk: ReferenceDesk, case: Case) -> p.Counted:
    desk.ready(case)
    script = Script(desk.worker, desk.device)
    script.set_state(MODEL, case.state)
    script.put_inputs("a", case.inputs, requires_grad=bool(case.wrt))
    script.step(
        p.Count(
            model=MODEL,
            inputs="a",
            cotangents=script.cotangents(case.cotangents) if case.wrt else {},
            wrt=case.wrt,
            training=case.training,
            clone_inputs=case.clone_inputs,
        )
    )
    script.step(p.Drop())
    counted: p.Counted = desk.run(script).of(p.Counted)[0]
    return counted


def launches_show(desk: ReferenceDesk, case: Case) -> bool:
    """Its kernels are so short that what a launch costs is a share of a call that is seen."""
    return desk.remember(("launches", case.seed, case.training), lambda: _ms_each(desk, case) < SHORT_MS)


def _ms_each(desk: ReferenceDesk, case: Case) -> float:
    """Milliseconds of one operation of a forward, on average; infinite where they cannot be counted."""
    desk.ready(case)
    script = Script(desk.worker, desk.device)
    script.set_state(MODEL, case.state)
    script.put_inputs("a", case.inputs)
    run: dict[str, Any] = {"inputs": "a", "training": case.training, "clone_inputs": case.clone_inputs}
    script.step(p.Count(model=MODEL, **run))  # not `work`, whose backward needs memory that a candidate may hold now
    for _ in range(3):
        script.step(p.Time(part="inference", model=MODEL, tape="a", grads="a", **run))
    script.step(p.Drop())
    finding = desk.run(script, tolerate_failure=True)
    if finding.failure is not None:
        return math.inf
    operations = finding.of(p.Counted)[0].forward.operations
    return float(min(timed.ms for timed in finding.of(p.Timed)) / max(operations, 1))


def gauge(desk: ReferenceDesk) -> p.Gauged:
    """What the device can do, measured by the reference's worker."""
    desk.release()
    measured = desk.step(p.Gauge(device=desk.device.value))
    assert isinstance(measured, p.Gauged)
    return measured
