"""One vector-Jacobian product of the candidate, asked for and brought back by the reference's operand names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec
from grader.executor.job import CotangentLayout
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.oracle.case import Case

LIGHT_BYTES = 64 << 20
"""Of all grad_outputs and gradients of one job, where it could be several."""
LIGHT_TENSORS = 1024
"""Of all gradients, likewise."""


@dataclass(frozen=True)
class Product:
    """What one backward gave. A gradient is None where autograd gave none, or the candidate has no such operand."""

    gradients: Mapping[str, torch.Tensor | None]
    misshapen: Mapping[str, p.TensorInfo]
    """Gradients that do not have their operand's shape or dtype."""


def ask(candidate: Candidate, case: Case, **how: Any) -> JobBuilder:
    """A job that runs forward and backward of a case once; `how` is as for `add_product`."""
    script = candidate.script(case)
    add_product(script, candidate, case, "a", **how)
    return script


def attempt_each(
    candidate: Candidate, case: Case, hows: Sequence[Mapping[str, Any]], doing: str
) -> Iterator[tuple[JobResult, str]]:
    """A finding for each way to ask, with the key of its gradients; none after one that raised.

    All in one job where that is light: on a GPU the job takes longer than the backward of a small case.
    """
    if _bytes_of_one(case) * len(hows) > LIGHT_BYTES or len(case.wrt) * len(hows) > LIGHT_TENSORS:
        for how in hows:
            finding = candidate.attempt(ask(candidate, case, **how), "backward", doing)
            yield finding, "a"
            if finding.failure is not None:
                return
        return
    script, ends = candidate.script(case), []
    for turn, how in enumerate(hows):
        if turn:
            candidate.reset(script, case)
        add_product(script, candidate, case, str(turn), **how)
        ends.append(script.length)
    finding = candidate.attempt(script, "backward", doing)
    so_far = replace(finding, evidence=finding.evidence.model_copy(update={"failure": None}))
    for turn, end in enumerate(ends):
        raised = finding.failure is not None and finding.failure.step < end
        yield finding if raised else so_far, str(turn)
        if raised:
            return


def add_product(
    script: JobBuilder,
    candidate: Candidate,
    case: Case,
    grads: str,
    *,
    cotangents: Mapping[str, torch.Tensor] | None = None,
    layout: CotangentLayout = "contiguous",
    frozen: Sequence[str] = (),
    side_stream: bool = False,
    double: bool = False,
    contiguous_grads: bool = False,
) -> None:
    """Forward and backward once, the gradients exported by the key `grads`; `frozen` operands require no gradient."""
    operands = candidate.operands(case)
    wrt = [name for name in operands if name not in frozen]
    script.put_inputs("a", case.inputs, requires_grad=True)
    add_forward(
        script, case, "a", frozen=[operands[name] for name in frozen if name in operands], side_stream=side_stream
    )
    script.step(
        p.Backward(
            tape="a",
            grads=grads,
            cotangents=script.cotangents(case.cotangents if cotangents is None else cotangents, layout),
            wrt=tuple(operands[name] for name in wrt),
            side_stream=side_stream,
            double=double,
            contiguous_grads=contiguous_grads,
        )
    )
    export_gradients(script, candidate, case, grads, wrt)


def add_forward(
    script: JobBuilder,
    case: Case,
    key: str,
    *,
    tape: str | None = None,
    frozen: Sequence[str] = (),
    side_stream: bool = False,
) -> None:
    script.step(
        p.Forward(
            model=MODEL,
            inputs=key,
            tape=tape or key,
            training=case.training,
            grad=True,
            frozen=tuple(frozen),
            side_stream=side_stream,
            seed=case.forward_seed or 0,
            clone_inputs=case.clone_inputs,
        )
    )


def export_gradients(script: JobBuilder, candidate: Candidate, case: Case, key: str, wrt: Sequence[str]) -> None:
    operands = candidate.operands(case)
    specs = {
        operands[name]: TensorSpec(candidate.shape(case, name), case.operand(name).dtype)
        for name in wrt
        if name in operands
    }
    script.export(exports("grad", key, specs))


def export_outputs(script: JobBuilder, case: Case, key: str) -> None:
    script.export(exports("output", key, output_specs(case)))


def product(candidate: Candidate, case: Case, finding: JobResult, key: str = "a") -> Product:
    """Reads the gradients of a finding, each in its operand's shape in the reference."""
    operands = candidate.operands(case)
    gradients: dict[str, torch.Tensor | None] = {}
    misshapen: dict[str, p.TensorInfo] = {}
    for name in case.wrt:
        source = f"grad:{key}:{operands.get(name)}"
        value = finding.sealed.get(source)
        refused = finding.refused.get(source)
        if value is None and refused is not None and refused.kind == "tensor":
            misshapen[name] = refused
        gradients[name] = None if value is None else value.view(case.operand(name).shape)
    return Product(gradients, misshapen)


def _bytes_of_one(case: Case) -> int:
    return sum(value.nbytes for value in (*case.cotangents.values(), *map(case.operand, case.wrt)))
