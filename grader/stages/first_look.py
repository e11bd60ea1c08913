"""What the reference does on a variant that it has not been asked about yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.remote import Script, TensorSpec
from grader.stages.drawing import zeros_or_ones
from grader.stages.evaluating import GOLDEN, MODEL, Traits, evaluate, widened

if TYPE_CHECKING:
    from grader.stages.reference import ReferenceDesk

PLAIN = ("bool", "int", "float", "str")
"""Types of what is no tensor and holds none."""


def first_look(
    desk: ReferenceDesk,
    parameters: tuple[p.TensorInfo, ...],
    buffers: tuple[p.TensorInfo, ...],
    inputs: Sequence[object],
    training: bool,
    anew: Callable[[], object],
) -> tuple[Traits, dict[str, torch.Tensor]]:
    """What the models in the worker do, and the float32 model's state as its constructor left it.

    `anew` constructs another float32 model. Raises ProblemError where the reference fails, or cannot be graded by.
    """
    names = {info.name: TensorSpec.of(info) for info in (*parameters, *buffers)}
    script = Script(desk.worker, desk.device)
    script.export({f"state:{MODEL}:{name}": spec for name, spec in names.items()})
    script.export({f"state:{GOLDEN}:{info.name}": widened(names[info.name], True) for info in buffers})
    sealed = desk.run(script).sealed
    state = {name: sealed[f"state:{MODEL}:{name}"] for name in names}
    seeded = {info.name: sealed[f"state:{GOLDEN}:{info.name}"].to(state[info.name].dtype) for info in buffers}
    tables = frozenset(
        name for name, other in seeded.items() if not zeros_or_ones(state[name]) and alike(state[name], other)
    )
    outputs, clone_inputs = _outputs(desk, inputs, training)
    has_float64 = _runs_in_float64(desk, inputs, training, clone_inputs)
    flops = _flops(desk, inputs, training, clone_inputs)
    traits = Traits(outputs, parameters, buffers, clone_inputs, False, has_float64, flops, tables)
    return traits._replace(stochastic=_stochastic(desk, traits, inputs, state, training, anew)), state


def _stochastic(
    desk: ReferenceDesk,
    traits: Traits,
    inputs: Sequence[object],
    state: Mapping[str, torch.Tensor],
    training: bool,
    anew: Callable[[], object],
) -> bool:
    """Whether two forwards under other seeds differ. Raises ProblemError where two models of the same state do."""

    def outputs(seed: int) -> Mapping[str, torch.Tensor]:
        return evaluate(desk, MODEL, traits, inputs, state, {}, (), training, seed=seed).outputs

    def differ(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
        return any(not alike(one[name], other[name]) for name in one)

    of_one = outputs(1)
    anew()
    of_another = outputs(2)
    if not differ(of_one, of_another):
        return False
    if not differ(of_another, outputs(1)):
        raise ProblemError(
            f"{desk.problem.path}: two models with the same parameters and buffers give different outputs; "
            "make a buffer of whatever else the constructor draws"
        )
    return True


def _outputs(desk: ReferenceDesk, inputs: Sequence[object], training: bool) -> tuple[tuple[p.TensorInfo, ...], bool]:
    """Their descriptions, and whether the reference works in place on its input."""
    for clone_inputs in (False, True):
        script = Script(desk.worker, desk.device)
        script.put_inputs("a", inputs, requires_grad=True)
        script.step(
            p.Forward(model=MODEL, inputs="a", tape="a", training=training, grad=True, clone_inputs=clone_inputs)
        )
        script.step(p.Drop())
        finding = desk.run(script, tolerate_failure=True)
        if finding.failure is None:
            outputs = finding.of(p.Outputs)[0].tensors
            _refuse_unknown(desk, outputs)
            return outputs, clone_inputs
        if "leaf Variable" not in finding.failure.text:
            break
    assert finding.failure is not None
    raise ProblemError(
        f"{desk.problem.path}: the reference raised {finding.failure.type_name}: "
        f"{(finding.failure.text.splitlines() or [''])[0]}"
    )


def _refuse_unknown(desk: ReferenceDesk, outputs: Sequence[p.TensorInfo]) -> None:
    """What nobody looks into may hold tensors that nobody would compare."""
    unknown = next((info for info in outputs if info.kind == "other" and info.type_name not in PLAIN), None)
    if unknown is not None:
        raise ProblemError(
            f"{desk.problem.path}: the reference returns a {unknown.type_name} as {unknown.name}; return tensors, or "
            "tuples, lists and dictionaries of them, with None, numbers and strings among them at most"
        )


def _runs_in_float64(desk: ReferenceDesk, inputs: Sequence[object], training: bool, clone_inputs: bool) -> bool:
    script = Script(desk.worker, desk.device)
    script.put_inputs("a", inputs, float64=True)
    script.step(p.Forward(model=GOLDEN, inputs="a", tape="a", training=training, clone_inputs=clone_inputs))
    script.step(p.Drop())
    return desk.run(script, tolerate_failure=True).failure is None


def _flops(desk: ReferenceDesk, inputs: Sequence[object], training: bool, clone_inputs: bool) -> float:
    script = Script(desk.worker, desk.device)
    script.put_inputs("a", inputs)
    script.step(p.Count(model=MODEL, inputs="a", training=training, clone_inputs=clone_inputs))
    script.step(p.Drop())
    counted = desk.run(script, tolerate_failure=True).of(p.Counted)
    return counted[0].forward.matmul + counted[0].forward.convolution if counted else 0.0


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """As two runs of the same on the same device are."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(
        a, b, rtol=1e-3, atol=1e-3 * float(a.abs().nan_to_num(0, 0, 0).amax()) if a.numel() else 0.0, equal_nan=True
    )
