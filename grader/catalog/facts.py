"""Determines whether the forward and backward of a problem can be graded, without computing values.

The reference runs on tensors that have shapes but no values. This needs almost no memory, so listing problems of any
size is quick.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeGuard

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from grader.catalog.problem_facts import Operand, ProblemFacts
from grader.catalog.problem_module import FULL, ProblemModule, load_problem
from grader.errors import ProblemError, summary
from grader.protocol import dtype_name
from grader.verdict.models import Problem


def facts(problem: Problem) -> ProblemFacts:
    """The facts about one problem. A problem that cannot be used is described, not raised."""
    about = ProblemFacts(id=problem.id, path=str(problem.path))
    try:
        module = load_problem(problem)
    except ProblemError as error:
        return about.model_copy(update={"why_not": str(error)})
    about = about.model_copy(update={"variants": tuple(module.variants), "forward": True})
    try:
        operands = _operands(module)
    except Exception as error:  # the problem's code may raise anything, and so may operators that need values
        return about.model_copy(update={"backward": True, "why_not": f"not known before it runs: {summary(error)}"})
    backward = any(operand.gradient for operand in operands if operand.kind != "output")
    return about.model_copy(
        update={
            "operands": operands,
            "backward": backward,
            "why_not": None if backward else "no output of the reference depends on anything that takes a gradient",
        }
    )


def _operands(module: ProblemModule) -> tuple[Operand, ...]:
    with FakeTensorMode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model's own warnings
        variant = module.variants[FULL]
        model = module.model_class(*variant.make_init_inputs())
        inputs = [_leaf(value) for value in variant.make_inputs()]
        outputs = dict(_flat("output", model(*(_not_a_leaf(value) for value in inputs))))
        named = {module.argument_name(index): value for index, value in enumerate(inputs)}
        operands: dict[str, object] = {**named, **dict(model.named_parameters())}
        wanted = {name: value for name, value in operands.items() if _differentiable(value)}
        reached = _reached(outputs, wanted)
        return (
            *(_operand(name, "input", value, reached) for name, value in named.items()),
            *(_operand(name, "parameter", value, reached) for name, value in model.named_parameters()),
            *(_operand(name, "output", value, {n for n, v in outputs.items() if _differentiable(v)})
              for name, value in outputs.items()),
        )  # fmt: skip


def _leaf(value: object) -> object:
    return value.requires_grad_() if isinstance(value, torch.Tensor) and _is_float(value) else value


def _not_a_leaf(value: object) -> object:
    """A copy, because references may write in place into inputs, which autograd forbids for leaves."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _flat(f"{name}[{index}]", item)
    else:
        yield name, value


def _reached(outputs: Mapping[str, object], wanted: Mapping[str, torch.Tensor]) -> set[str]:
    """Names of the operands with a gradient from some output."""
    roots = [value for value in outputs.values() if _differentiable(value)]
    if not roots or not wanted:
        return set()
    gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(
        roots, list(wanted.values()), [torch.ones_like(r) for r in roots], allow_unused=True
    )
    return {name for name, gradient in zip(wanted, gradients, strict=True) if gradient is not None}


def _operand(
    name: str, kind: Literal["input", "parameter", "output"], value: object, with_gradient: set[str]
) -> Operand:
    if not isinstance(value, torch.Tensor):
        type_name, why = type(value).__name__, "it is not a tensor"
        return Operand(name=name, kind=kind, shape=None, dtype=type_name, gradient=False, why_no_gradient=why)
    gradient, dtype = name in with_gradient, dtype_name(value.dtype)
    why_not = None if gradient else _why_no_gradient(value, kind, dtype)
    shape = tuple(value.shape)
    return Operand(name=name, kind=kind, shape=shape, dtype=dtype, gradient=gradient, why_no_gradient=why_not)


def _why_no_gradient(value: torch.Tensor, kind: str, dtype: str) -> str:
    if not _is_float(value):
        return f"{dtype} has no gradients"
    if kind == "output":
        return "the reference's output does not require a gradient"
    return "no output of the reference depends on it differentiably" if value.requires_grad else "it is frozen"


def _differentiable(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_float(value: torch.Tensor) -> bool:
    return (value.is_floating_point() and value.itemsize > 1) or value.is_complex()
