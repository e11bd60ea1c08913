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
    streamed: bool = False,
) -> Evaluation:
    """One forward and, with cotangents, one backward, in float32 or float64 as the model is.

    `streamed`: each tensor can be read once, before the reference's next job, and is not kept here.
    """
    wide = model == MODEL64
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
    script.export({source: widened(spec, wide) for source, spec in wanted.items()}, widen=wide)
    script.step(p.Drop())
    result = reference.run(script)
    sealed: Mapping[str, torch.Tensor | None] = Streamed(result, wanted, wide)
    if not streamed:
        sealed = {source: sealed[source] for source in wanted}
    return Evaluation(
        Named(sealed, {name: f"output:a:{name}" for name in outputs}),
        Named(sealed, {name: f"grad:a:{name}" for name in operands}),
        Named(sealed, {name: f"state:{model}:{name}" for name in buffers}),
    )


class Streamed(Mapping[str, "torch.Tensor | None"]):
    """Sealed tensors of a run by their sources, each forgotten when it has been read."""

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
    others: Sequence[Sequence[object]],
    state: Mapping[str, torch.Tensor],
    training: bool,
) -> list[list[Evaluation]]:
    """Outputs by model and inputs, none of them large: one forward for each pair, all in one job."""
    job = JobBuilder(reference.worker, reference.device)
    outputs = {info.name: TensorSpec.of(info) for info in traits.outputs if info.kind == "tensor"}
    for model, (turn, inputs) in product(models, enumerate(others)):
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

    return [[of(model, turn) for turn in range(len(others))] for model in models]


class Named(Mapping[str, Any]):
    """One table of a run: tensors by name."""

    def __init__(self, sealed: Mapping[str, torch.Tensor | None], sources: Mapping[str, str]) -> None:
        self._sealed, self._sources = sealed, sources

    def __getitem__(self, name: str) -> Any:
        return self._sealed[self._sources[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def rounded(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A large float64 result in float32, as the time and the memory that it takes are its size.

    That adds 0.3 rounding errors to the 32 that `tolerance` allows a norm, and half a one to an element.
    """
    return exact.to(torch.promote_types(dtype, torch.float32)) if is_large(exact) and dtype.is_floating_point else exact


def widened(spec: TensorSpec, wide: bool) -> TensorSpec:
    """As the float64 model has it."""
    if not wide or not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return spec
    return TensorSpec(spec.shape, torch.promote_types(spec.dtype, torch.float64))
