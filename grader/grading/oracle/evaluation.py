"""One run of the reference: a forward and, with grad_outputs, a backward, in float32 or float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec
from grader.grading.oracle.large import is_large
from grader.grading.oracle.reference_process import ReferenceProcess

MODEL, MODEL64 = "model", "model64"
"""The reference's two models in its worker: float32 and float64."""


class Traits(NamedTuple):
    """Properties of a variant of the reference in one mode, found by `first_look`."""

    outputs: tuple[p.TensorInfo, ...]
    parameters: tuple[p.TensorInfo, ...]
    buffers: tuple[p.TensorInfo, ...]
    clone_inputs: bool
    stochastic: bool
    """Two runs on the same inputs and state differ under different seeds."""
    has_float64: bool
    flops: float
    """Operations of one forward's matrix products and convolutions; 0 if they cannot be counted."""
    scanned: int
    """Elements of the longest running sum or product; 0 if they cannot be counted."""
    tables: frozenset[str]
    """Buffers that do not depend on the seed and are not all 0 or all 1, as statistics start: positions, masks,
    filters. A kernel may compute them by formula, so the grader does not change them."""

    @property
    def learned(self) -> frozenset[str]:
        """The names of parameters."""
        return frozenset(info.name for info in self.parameters)


class Evaluation(NamedTuple):
    """The sealed tensors of one run of the reference, by name."""

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
    streamed: bool = False,
) -> Evaluation:
    """Run one forward and, if `wrt` is not empty, one backward, in the precision of the model.

    With `streamed`, each tensor can be read once and before the reference's next job, and is not kept here. Raises
    ProblemError if the reference fails.
    """
    wide = model == MODEL64
    job = JobBuilder(reference.worker, reference.device)
    job.set_state(model, state)
    job.put_inputs("a", inputs, requires_grad=bool(wrt), float64=wide)
    job.step(
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
    if wrt:
        grad_outputs = job.cotangents(cotangents)
        job.step(p.Backward(tape="a", grads="a", cotangents=grad_outputs, wrt=tuple(wrt), tf32=tf32))
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
    job.export({source: widened(spec, wide) for source, spec in wanted.items()}, widen=wide)
    job.step(p.Drop())
    result = reference.run(job)
    sealed: Mapping[str, torch.Tensor | None] = Streamed(result, wanted, wide)
    if not streamed:
        sealed = {source: sealed[source] for source in wanted}
    return Evaluation(
        Named(sealed, {name: f"output:a:{name}" for name in outputs}),
        Named(sealed, {name: f"grad:a:{name}" for name in operands}),
        Named(sealed, {name: f"state:{model}:{name}" for name in buffers}),
    )


class Streamed(Mapping[str, "torch.Tensor | None"]):
    """The sealed tensors of a run by source; reading a tensor removes it."""

    def __init__(self, result: JobResult, wanted: Mapping[str, TensorSpec], wide: bool) -> None:
        self._result, self._wanted, self._wide = result, wanted, wide

    def __getitem__(self, source: str) -> torch.Tensor | None:
        value = self._result.take(source)
        return rounded(value, self._wanted[source].dtype) if value is not None and self._wide else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)


def forward_each(
    reference: ReferenceProcess,
    models: Sequence[str],
    traits: Traits,
    inputs_of_each: Sequence[Sequence[object]],
    state: Mapping[str, torch.Tensor],
    training: bool,
) -> list[list[Evaluation]]:
    """The outputs by model and inputs, none of them large: one forward for each pair, all in one job."""
    job = JobBuilder(reference.worker, reference.device)
    outputs = {info.name: TensorSpec.of(info) for info in traits.outputs if info.kind == "tensor"}
    for model, (turn, inputs) in product(models, enumerate(inputs_of_each)):
        wide, tape = model == MODEL64, f"{model}-{turn}"
        job.set_state(model, state)
        job.put_inputs("a", inputs, float64=wide)
        clone = traits.clone_inputs
        job.step(p.Forward(model=model, inputs="a", tape=tape, training=training, clone_inputs=clone))
        job.export({f"output:{tape}:{name}": widened(spec, wide) for name, spec in outputs.items()}, widen=wide)
    job.step(p.Drop())
    sealed = reference.run(job).sealed

    def of(model: str, turn: int) -> Evaluation:
        return Evaluation({name: sealed[f"output:{model}-{turn}:{name}"] for name in outputs}, {}, {})

    return [[of(model, turn) for turn in range(len(inputs_of_each))] for model in models]


class Named(Mapping[str, Any]):
    """One table of a run: its tensors by name."""

    def __init__(self, sealed: Mapping[str, torch.Tensor | None], sources: Mapping[str, str]) -> None:
        self._sealed, self._sources = sealed, sources

    def __getitem__(self, name: str) -> Any:
        return self._sealed[self._sources[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def rounded(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A large float64 result in float32; other results unchanged.

    This halves the memory and the time of the comparison. It adds 0.3 rounding errors to the 32 that `tolerance` allows
    for a norm, and half a rounding error to an element.
    """
    return exact.to(torch.promote_types(dtype, torch.float32)) if is_large(exact) and dtype.is_floating_point else exact


def widened(spec: TensorSpec, wide: bool) -> TensorSpec:
    """The spec of the same tensor of the float64 model, if `wide`."""
    if not wide or not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return spec
    return TensorSpec(spec.shape, torch.promote_types(spec.dtype, torch.float64))
