"""One run of the reference: a forward and, with grad_outputs, a backward, in float32 or float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, Protocol

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.executor import JobBuilder, JobResult, TensorSpec
from grader.grading.compare.blocks import CHECK_BYTES, LARGE_BYTES
from grader.grading.messages import shape_text
from grader.grading.oracle.case import Case, nbytes_of
from grader.grading.oracle.reference_process import ReferenceProcess
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import cut_each, rounded_each
from grader.machine.backends import backend
from grader.protocol.changes import Substitute

MODEL, MODEL64 = "model", "model64"
"""Keys in a worker: of the active model, and of the reference's float64 one."""
_Wanted = Mapping[str, tuple[str, TensorSpec]]
"""Export sources and specs by name."""


class Evaluation(NamedTuple):
    """The sealed tensors of one run of the reference, by name."""

    outputs: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor | None]
    buffers: Mapping[str, torch.Tensor]
    changed: str = ""
    """What a `Change` changed; empty if nothing."""
    numbers: int = 0
    """Different numbers in the results that it rounded, as far as a sample shows."""
    described: tuple[p.TensorInfo, ...] = ()
    """The outputs as they were returned."""
    slips: tuple[p.PossibleSlip, ...] = ()
    """What could go wrong, where a slip was asked for."""
    sparse: frozenset[str] = frozenset()
    """Operands whose gradients are sparse, as those of `nn.Embedding(sparse=True)`; they are read as dense ones."""

    @property
    def observed(self) -> dict[str, torch.Tensor]:
        """Outputs and buffers."""
        return {**self.outputs, **{f"buffer {name}": value for name, value in self.buffers.items()}}

    @property
    def structure(self) -> list[tuple[object, ...]]:
        """Name, kind, shape and dtype of each output."""
        return [(info.name, info.kind, info.shape, info.dtype) for info in self.described]


@dataclass(frozen=True)
class Pass:
    """One forward and, with operands, one backward, for one of the reference's models."""

    model: str
    inputs: Sequence[object]
    state: Mapping[str, torch.Tensor]
    cotangents: Mapping[str, torch.Tensor] = field(default_factory=dict)
    wrt: Sequence[str] = ()
    """Operands of the backward; without any there is none."""
    training: bool = True
    seed: int = 0
    tf32: bool = False
    substitute: Substitute = "none"
    change: p.Change | None = None
    change_in: tuple[Literal["forward", "backward"], ...] = ()
    """Where the change applies."""
    before: tuple[p.Step, ...] = ()
    """Steps before it."""
    earlier: tuple[Sequence[object], ...] = ()
    """Inputs of forwards before it, which change the state that it begins with."""

    @staticmethod
    def of(case: Case, model: str = MODEL, *, backward: bool = True) -> Pass:
        """The forward of a case and, unless there is nothing to differentiate, its backward."""
        differentiated = (case.cotangents, case.wrt) if backward and case.cotangents else ({}, ())
        return Pass(model, case.inputs, case.state, *differentiated, training=case.training)

    @property
    def in_float64(self) -> bool:
        """Whether it runs in float64."""
        return self.model == MODEL64

    def operands(self) -> dict[str, TensorSpec]:
        """The spec of each operand's gradient in float32."""
        tensors = {f"input[{i}]": value for i, value in enumerate(self.inputs) if isinstance(value, torch.Tensor)}
        tensors |= self.state
        return {name: TensorSpec.like(tensors[name]) for name in self.wrt}

    def in_tf32(self, *, cut: bool = False) -> Pass:
        """The pass on operands rounded to TensorFloat-32, which a library may choose not to use, or `cut`."""
        of_each, tables = cut_each if cut else rounded_each, (self.state, self.cotangents)
        state, given = (dict(zip(table, of_each(table.values()), strict=True)) for table in tables)
        return replace(self, inputs=of_each(self.inputs), state=state, cotangents=given)

    def sent(self) -> dict[int, torch.Tensor]:
        """The tensors that are sent, by identity: in one job, each is sent once."""
        values = (*self.inputs, *self.state.values(), *self.cotangents.values(), *chain.from_iterable(self.earlier))
        return {id(value): value for value in values if isinstance(value, torch.Tensor)}

    def returned_bytes(self, traits: Traits) -> int:
        """Bytes of the tensors that are returned."""
        specs = (*traits.output_specs().values(), *traits.buffer_specs().values(), *self.operands().values())
        return sum(widened(spec, self.in_float64).nbytes for spec in specs)


class Ask(Protocol):
    """Has the reference run passes, and yields their results in order."""

    def __call__(self, passes: Iterable[Pass], /, *, streamed: bool = False) -> Iterator[Evaluation]: ...


def evaluate_each(
    reference: ReferenceProcess, traits: Traits, passes: Iterable[Pass], *, streamed: bool = False
) -> Iterator[Evaluation]:
    """Yields the results of each pass; a job has as many as, beside its first, take less than LARGE_BYTES.

    The limit is CHECK_BYTES on a device with memory of its own, where a job takes longer than most passes.

    With `streamed`, each tensor can be read once and before the reference's next job, and is not kept here. Raises
    ProblemError if the reference fails.
    """
    most = CHECK_BYTES if backend(reference.device).own_memory else LARGE_BYTES
    together: list[Pass] = []
    sent, nbytes = dict[int, torch.Tensor](), 0
    for one in passes:
        given = one.sent()
        more = nbytes_of(value for key, value in given.items() if key not in sent) + one.returned_bytes(traits)
        if together and nbytes + more > most:
            yield from _in_one_job(reference, traits, together, streamed)
            together = []
        if not together:
            sent, nbytes, more = {}, 0, 0
        together.append(one)
        sent, nbytes = sent | given, nbytes + more
    if together:
        yield from _in_one_job(reference, traits, together, streamed)


def _in_one_job(
    reference: ReferenceProcess, traits: Traits, passes: Sequence[Pass], streamed: bool
) -> Iterator[Evaluation]:
    job = JobBuilder(reference.worker, reference.device)
    wanted = []
    for index, one in enumerate(passes):
        if index:
            job.step(p.Drop(keep_bytes=None))
        for step in one.before:
            job.step(step)
        if len(passes) > 1:  # each exports the buffers of the same model, under a name of its own
            job.step(p.Use(model=f"{one.model}-{index}", constructed=one.model))
        wanted.append(_add(job, traits, one, str(index), f"{one.model}-{index}" if len(passes) > 1 else one.model))
    job.step(p.Drop())
    result = reference.run(job)
    forwards, backwards = iter(result.of(p.Outputs)), iter(result.of(p.Gradients))
    for tables, one in zip(wanted, passes, strict=True):
        *_, returned = islice(forwards, len(one.earlier) + 1)
        if one.training == traits.training:
            _require_shapes(reference, traits, returned.tensors)
        answers = (returned, *((next(backwards),) if one.wrt else ()))
        changes = [(answer.changed, answer.numbers) for answer in answers]
        slips = chain.from_iterable(answer.slips for answer in answers)
        sparse = frozenset(info.name for gradients in answers[1:] for info in gradients.tensors if info.is_sparse)
        found: list[Mapping[str, Any]] = [Streamed(result, table) for table in tables]
        outputs, gradients, buffers = found if streamed else map(dict[str, Any], found)
        yield Evaluation(outputs, gradients, buffers, *max(changes), returned.tensors, tuple(slips), sparse)


def _require_shapes(reference: ReferenceProcess, traits: Traits, returned: Sequence[p.TensorInfo]) -> None:
    """Raise ReferenceRefused where an output has another shape than in the first look."""
    shapes = {info.name: info.shape for info in traits.outputs}
    other = next((info for info in returned if info.shape != shapes.get(info.name, info.shape)), None)
    if other is not None:
        what = f"{other.name} is {shape_text(shapes[other.name])} in one call and {shape_text(other.shape)} in another"
        why = f"{what}, for inputs of the same sizes; return tensors whose shapes do not depend on values"
        raise ReferenceRefused(f"{reference.problem.path}: {why}")


def _add(job: JobBuilder, traits: Traits, one: Pass, key: str, model: str) -> tuple[_Wanted, _Wanted, _Wanted]:
    """Add a pass to a job, and return the sources of its outputs, gradients and buffers with their float32 specs."""
    job.set_state(model, one.state)
    for inputs in one.earlier:
        job.put_inputs("earlier", inputs, float64=one.in_float64)
        job.step(p.Forward(model=model, inputs="earlier", tape="earlier", training=one.training, seed=one.seed))
    job.put_inputs("a", one.inputs, requires_grad=bool(one.wrt), float64=one.in_float64)
    job.step(
        p.Forward(
            model=model,
            inputs="a",
            tape=key,
            training=one.training,
            grad=bool(one.wrt),
            seed=one.seed,
            tf32=one.tf32,
            clone_inputs=traits.clone_inputs,
            substitute=one.substitute,
            change=one.change if "forward" in one.change_in else None,
        )
    )
    if one.wrt:
        grad_outputs = job.cotangents(one.cotangents)
        job.step(
            p.Backward(
                tape=key,
                grads=key,
                cotangents=grad_outputs,
                wrt=tuple(one.wrt),
                tf32=one.tf32,
                substitute="tf32" if one.substitute == "tf32" else "none",
                change=one.change if "backward" in one.change_in else None,
            )
        )
    wanted = (
        {name: (p.output_source(key, name), spec) for name, spec in traits.output_specs().items()},
        {name: (p.gradient_source(key, name), spec) for name, spec in one.operands().items()},
        {name: (p.state_source(model, name), spec) for name, spec in traits.buffer_specs().items()},
    )
    exports = {source: widened(spec, one.in_float64) for table in wanted for source, spec in table.values()}
    job.export(exports, convert=one.in_float64)
    return wanted


class Streamed(Mapping[str, Any]):
    """One table of a run: its sealed tensors by name, or None. Reading a tensor of a large run removes it."""

    def __init__(self, result: JobResult, wanted: _Wanted) -> None:
        self._result, self._wanted = result, wanted

    def __getitem__(self, name: str) -> torch.Tensor | None:
        source, _ = self._wanted[name]
        return self._result.take(source)

    def __iter__(self) -> Iterator[str]:
        return iter(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)


def widened(spec: TensorSpec, wide: bool) -> TensorSpec:
    """The spec to read a tensor in; with `wide`, of the float64 model: float32 if large and real.

    Float32 halves the memory and the time of the comparison. It adds 0.3 rounding errors to the 32 that `tolerance`
    allows for a norm, and half a rounding error to an element.
    """
    if not wide or not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return spec
    exact = TensorSpec(spec.shape, torch.complex128 if spec.dtype.is_complex else torch.float64)
    if spec.dtype.is_complex or exact.nbytes < LARGE_BYTES:
        return exact
    return TensorSpec(spec.shape, torch.float32)
