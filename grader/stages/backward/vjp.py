"""One vector-Jacobian product of the candidate, asked for and brought back by the reference's operand names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from grader import protocol as p
from grader.remote import Finding, Script, TensorSpec
from grader.remote.script import CotangentLayout
from grader.stages.candidate import MODEL, Candidate, exports, output_specs
from grader.stages.cases import Case


@dataclass(frozen=True)
class Product:
    """What one backward gave. A gradient is None where autograd gave none, or the candidate has no such operand."""

    gradients: Mapping[str, torch.Tensor | None]
    misshapen: Mapping[str, p.TensorInfo]
    """Gradients that do not have their operand's shape or dtype."""


def ask(
    candidate: Candidate,
    case: Case,
    *,
    cotangents: Mapping[str, torch.Tensor] | None = None,
    layout: CotangentLayout = "contiguous",
    frozen: Sequence[str] = (),
    side_stream: bool = False,
    double: bool = False,
    contiguous_grads: bool = False,
) -> Script:
    """A job that runs forward and backward of a case once; `frozen` operands require no gradient."""
    operands = candidate.operands(case)
    wrt = [name for name in operands if name not in frozen]
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=True)
    add_forward(
        script, case, "a", frozen=[operands[name] for name in frozen if name in operands], side_stream=side_stream
    )
    script.step(
        p.Backward(
            tape="a",
            grads="a",
            cotangents=script.cotangents(case.cotangents if cotangents is None else cotangents, layout),
            wrt=tuple(operands[name] for name in wrt),
            side_stream=side_stream,
            double=double,
            contiguous_grads=contiguous_grads,
        )
    )
    export_gradients(script, candidate, case, "a", wrt)
    return script


def add_forward(
    script: Script,
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
            clone_inputs=case.clone_inputs,
        )
    )


def export_gradients(script: Script, candidate: Candidate, case: Case, key: str, wrt: Sequence[str]) -> None:
    operands = candidate.operands(case)
    specs = {
        operands[name]: TensorSpec(candidate.shape(case, name), case.operand(name).dtype)
        for name in wrt
        if name in operands
    }
    script.export(exports("grad", key, specs))


def export_outputs(script: Script, case: Case, key: str) -> None:
    script.export(exports("output", key, output_specs(case)))


def product(candidate: Candidate, case: Case, finding: Finding, key: str = "a") -> Product:
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
