"""One run of the reference: a forward and, with grad_outputs, a backward, in float32 or float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch

from grader import protocol as p
from grader.executor import JobBuilder, TensorSpec
from grader.grading.oracle.host_memory import is_large, parked
from grader.grading.oracle.reference_process import ReferenceProcess

MODEL, MODEL64 = "model", "model64"
"""The reference's two models in its worker: float32 and float64."""


class Traits(NamedTuple):
    """What a first look at a variant tells."""

    outputs: tuple[p.TensorInfo, ...]
    parameters: tuple[p.TensorInfo, ...]
    buffers: tuple[p.TensorInfo, ...]
    clone_inputs: bool
    stochastic: bool
    """Two runs on the same inputs and state, with other seeds, differ."""
    has_float64: bool
    flops: float
    """Of one forward's matrix products and convolutions; 0 where they cannot be counted."""
    scanned: int
    """Elements of its longest running sum or product; likewise."""
    tables: frozenset[str]
    """Buffers that another seed leaves alike, and not all zeros or ones, which statistics start as: positions, masks,
    filters. A kernel may have them by formula, so that nobody moves them."""

    @property
    def learned(self) -> frozenset[str]:
        """Names of parameters."""
        return frozenset(info.name for info in self.parameters)


class Evaluation(NamedTuple):
    """Sealed tensors of one run of the reference."""

    outputs: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor | None]
    buffers: Mapping[str, torch.Tensor]


def evaluate(
    reference: ReferenceProcess,
    model: str,
    traits: Traits,
    inputs: Sequence[object],
    state: Mapping[str, torch.Tensor],
    cotangents: Mapping[str, torch.Tensor],
    wrt: Sequence[str],
    training: bool,
    seed: int = 0,
    tf32: bool = False,
    substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach"] = "none",
) -> Evaluation:
    """One forward and, with cotangents, one backward, in float32 or float64 as the model is."""
    wide = model == MODEL64
    large = any(is_large(value) for value in inputs)
    script = JobBuilder(reference.worker, reference.device)
    script.set_state(model, state)
    script.put_inputs("a", inputs, requires_grad=bool(wrt), float64=wide)
    script.step(
        p.Forward(
            model=model,
            inputs="a",
            tape="a",
            training=training,
            grad=bool(wrt),
            seed=seed,
            tf32=tf32,
            clone_inputs=traits.clone_inputs,
            substitute=substitute,
        )
    )
    if wrt and large:  # a job of its own: the inbox holds either inputs or grad_outputs
        reference.run(script)
        script = JobBuilder(reference.worker, reference.device)
    if wrt:
        given = script.cotangents(cotangents)
        script.step(p.Backward(tape="a", grads="a", cotangents=given, wrt=tuple(wrt), tf32=tf32))
    tensors = {f"input[{i}]": value for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    tensors |= state
    outputs = {info.name: TensorSpec.of(info) for info in traits.outputs if info.kind == "tensor"}
    buffers = {info.name: TensorSpec.of(info) for info in traits.buffers}
    operands = {name: TensorSpec(tuple(tensors[name].shape), tensors[name].dtype) for name in wrt}
    wanted = {
        **{f"output:a:{name}": spec for name, spec in outputs.items()},
        **{f"grad:a:{name}": spec for name, spec in operands.items()},
        **{f"state:{model}:{name}": spec for name, spec in buffers.items()},
    }
    if large:
        sealed = _one_by_one(reference, script, wanted, wide=wide)
    else:
        script.export({source: widened(spec, wide) for source, spec in wanted.items()}, widen=wide)
        script.step(p.Drop())
        found = reference.run(script).sealed.items()
        sealed = {source: _waiting(value, wanted[source]) if wide else value for source, value in found}
    return Evaluation(
        {name: sealed[f"output:a:{name}"] for name in outputs},
        {name: sealed.get(f"grad:a:{name}") for name in operands},
        {name: sealed[f"state:{model}:{name}"] for name in buffers},
    )


def _one_by_one(
    reference: ReferenceProcess, script: JobBuilder, wanted: Mapping[str, TensorSpec], *, wide: bool
) -> dict[str, torch.Tensor]:
    """At full size: results come back when what computing them took is free again, one after another."""
    script.step(p.Drop(keep_results=True))
    reference.run(script)
    reference.worker.release_memory()
    sealed: dict[str, torch.Tensor] = {}
    for source, spec in wanted.items():
        script = JobBuilder(reference.worker, reference.device)
        script.export({source: widened(spec, wide)}, widen=wide)
        found = reference.run(script).sealed
        sealed |= {source: _waiting(value, spec) if wide else value for source, value in found.items()}
    reference.step(p.Drop())
    return sealed


def _waiting(exact: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """A float64 result until it is needed; `spec`: what it is in float32.

    A large one is rounded to float32: it is compared from the host's memory, so the time that takes is its size. That
    adds 0.3 rounding errors to the 32 that `numerics` allows a norm, and half a one to some hundred of an element.
    What is not real floats stays where it is: integers and booleans are compared all at once.
    """
    if not spec.dtype.is_floating_point:
        return exact
    return parked(exact, torch.promote_types(spec.dtype, torch.float32))


def widened(spec: TensorSpec, wide: bool) -> TensorSpec:
    """As the float64 model has it."""
    if not wide or not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return spec
    return TensorSpec(spec.shape, torch.promote_types(spec.dtype, torch.float64))
