"""Composes vector-Jacobian products of the candidate, and reads them by the reference's operand names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict, Unpack

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec
from grader.executor.job import CotangentLayout
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parts import forward_step
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.oracle.case import Case, nbytes_of

MAX_SHARED_GRADIENTS = 1024
"""Gradients that one job may export: a quarter of the 4096 tensors that a job's result may list, because outputs and
buffers count as well."""


GradOutputs = Callable[[], Mapping[str, torch.Tensor]]
"""Makes grad_outputs by output name."""


@dataclass(frozen=True)
class Product:
    """The gradients of one backward: None where autograd gave none, or the candidate has no such operand."""

    gradients: Mapping[str, torch.Tensor | None]
    misshapen: Mapping[str, p.TensorInfo]
    """Gradients that do not have their operand's shape or dtype."""


class How(TypedDict, total=False):
    """Options of `add_product`."""

    cotangents: Mapping[str, torch.Tensor] | None
    layout: CotangentLayout
    strided_inputs: bool
    frozen: Sequence[str]
    side_stream: bool
    double: bool
    contiguous_grads: bool
    change: p.Change | None


class Question(NamedTuple):
    """One of several questions that a job may ask together."""

    case: Case
    add: Callable[[JobBuilder, str], None]
    """Adds the steps, and exports the gradients under this key."""


class Answer(NamedTuple):
    """The answer to one question."""

    result: JobResult
    key: str
    """The key of its gradients."""


def product_job(candidate: Candidate, case: Case, **how: Unpack[How]) -> JobBuilder:
    """A job that runs forward and backward of a case once, key "a"."""
    job = candidate.script(case)
    add_product(job, candidate, case, "a", **how)
    return job


def one_product(candidate: Candidate, case: Case, *, given: GradOutputs | None = None, **how: Unpack[How]) -> Question:
    """Forward and backward of a case once, as a question.

    `given` makes other grad_outputs when it is added: those of a large case, which are gigabytes, in its turn.
    """

    def add(job: JobBuilder, key: str) -> None:
        made = how.copy()
        if given is not None:
            made["cotangents"] = given()
        add_product(job, candidate, case, key, **made)

    return Question(case, add)


def attempt_each(candidate: Candidate, questions: Sequence[Question], doing: str) -> Iterator[Answer]:
    """Yields the answer to each question, up to the first that raises.

    Raises Stopped when the worker is lost. All are of one variant. Small ones share a job: on a GPU, a job takes longer
    than the backward of a small case.
    """
    for group in _sharing_jobs(list(enumerate(questions))):
        job, ends = candidate.script(group[0][1].case), list[int]()
        for turn, question in group:
            if ends:
                candidate.reset(job, question.case)
            question.add(job, str(turn))
            ends.append(job.length)
        result = candidate.attempt(job, "backward", doing)
        before_failure = replace(result, evidence=result.evidence.model_copy(update={"failure": None}))
        for (turn, _), end in zip(group, ends, strict=True):
            raised = result.failure is not None and result.failure.step < end
            yield Answer(result if raised else before_failure, str(turn))
            if raised:
                return
        del result, before_failure  # of a large case, gigabytes that the next job may need


def _sharing_jobs(questions: Sequence[tuple[int, Question]]) -> Iterator[list[tuple[int, Question]]]:
    """The questions of each job, in their order: as many as fit."""
    group, nbytes, gradients = list[tuple[int, Question]](), 0, 0
    for turn, question in questions:
        nbytes, gradients = nbytes + _bytes_of_one(question.case), gradients + len(question.case.wrt)
        if group and (nbytes > CHECK_BYTES or gradients > MAX_SHARED_GRADIENTS):
            yield group
            group, nbytes, gradients = [], _bytes_of_one(question.case), len(question.case.wrt)
        group.append((turn, question))
    if group:
        yield group


def add_product(
    job: JobBuilder,
    candidate: Candidate,
    case: Case,
    key: str,
    *,
    tape: str = "a",
    cotangents: Mapping[str, torch.Tensor] | None = None,
    layout: CotangentLayout = "contiguous",
    strided_inputs: bool = False,
    frozen: Sequence[str] = (),
    side_stream: bool = False,
    double: bool = False,
    contiguous_grads: bool = False,
    change: p.Change | None = None,
) -> None:
    """Run forward and backward, and export the gradients as `key`; `frozen` operands require no gradient.

    `change` is the forward's. `layout` is grad_output's. Inputs and outputs stay in the worker under `tape`.
    """
    wrt = [name for name in candidate.operands(case) if name not in frozen]
    job.put_inputs(tape, case.inputs, requires_grad=True, layout="strided" if strided_inputs else "contiguous")
    add_graph_forward(job, case, tape, frozen=candidate.frozen(case, frozen), side_stream=side_stream, change=change)
    job.step(
        p.Backward(
            tape=tape,
            grads=key,
            cotangents=job.cotangents(case.cotangents if cotangents is None else cotangents, layout),
            wrt=candidate.wrt(case, frozen),
            side_stream=side_stream,
            double="own" if double else "no",
            contiguous_grads=contiguous_grads,
        )
    )
    export_gradients(job, candidate, case, key, wrt)


def add_graph_forward(
    job: JobBuilder,
    case: Case,
    key: str,
    *,
    tape: str | None = None,
    frozen: Sequence[str] = (),
    side_stream: bool = False,
    change: p.Change | None = None,
) -> None:
    """A forward with a graph on the inputs under `key`; its outputs stay under `tape`, by default `key`."""
    how = {"frozen": tuple(frozen), "side_stream": side_stream, "change": change}
    job.step(forward_step(case, key, tape=tape, grad=True, **how))


def export_gradients(job: JobBuilder, candidate: Candidate, case: Case, key: str, wrt: Sequence[str]) -> None:
    """Bring back the gradients of the operands `wrt` under `key`."""
    operands = candidate.operands(case)
    specs = {
        p.gradient_source(key, operands[name]): TensorSpec(candidate.shape(case, name), case.operand(name).dtype)
        for name in wrt
        if name in operands
    }
    job.export(specs)


def product(candidate: Candidate, case: Case, result: JobResult, key: str = "a") -> Product:
    """The gradients of a job, each in its operand's shape in the reference."""
    operands = candidate.operands(case)
    gradients: dict[str, torch.Tensor | None] = {}
    misshapen: dict[str, p.TensorInfo] = {}
    for name in case.wrt:
        source = p.gradient_source(key, operands.get(name))
        value = result.sealed.get(source)
        refused = result.refused.get(source)
        if value is None and refused is not None and refused.kind == "tensor":
            misshapen[name] = refused
        gradients[name] = None if value is None else candidate.taken(case, name, value)
    return Product(gradients, misshapen)


def sparse_for_dense(candidate: Candidate, case: Case, result: JobResult) -> dict[str, p.TensorInfo]:
    """The sparse gradients of a job's first backward where the reference's are dense, by its names."""
    found = {info.name: info for info in result.of(p.Gradients)[0].tensors if info.is_sparse}
    operands = candidate.operands(case)
    return {name: found[theirs] for name, theirs in operands.items() if theirs in found and name not in case.sparse}


def _bytes_of_one(case: Case) -> int:
    return nbytes_of((*case.cotangents.values(), *map(case.operand, case.wrt)))


def gradients_of(candidate: Candidate, case: Case) -> Mapping[str, torch.Tensor | None]:
    """The gradients of one plain product of another draw; None where it has none. Raises Stopped."""
    result = candidate.attempt(product_job(candidate, case), "backward", "backward of another draw")
    return {} if result.failure is not None else product(candidate, case, result).gradients
