"""Which kernels are compiled where there is no GPU, and what a verdict says about the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from grader import protocol as p
from grader.catalog.problem_module import FULL, load_problem
from grader.catalog.requests import Request
from grader.errors import ProblemError
from grader.grading.outcome import MAX_QUOTED
from grader.verdict.stages import BuildResult

AT_THE_LAUNCH = {
    "torch_compile": "torch.compile",
    "cupy": "CuPy",
    "numba": "Numba",
    "cute": "the CuTe DSL",
    "tilelang": "TileLang",
}
"""Languages whose compilers ask the GPU, at the first launch."""


def step_for(request: Request) -> p.CompileAhead | None:
    """The step that compiles Triton kernels for a problem's first sizes; None if there are none.

    The problem's inputs are drawn as fake tensors, which cost no memory. None if that fails.
    """
    if "triton" not in request.languages:
        return None
    try:
        variants = load_problem(request.problem).variants
        variant = next((one for name, one in variants.items() if name != FULL), variants[FULL])
        with FakeTensorMode():
            return p.CompileAhead(
                init_inputs=p.encode_value(list(variant.make_init_inputs())),
                inputs=tuple(map(_described, variant.make_inputs())),
            )
    except (ProblemError, TypeError, RuntimeError):
        return None


def _described(value: object) -> p.FakeInput:
    if isinstance(value, torch.Tensor):
        return p.FakeInput(shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))
    return p.FakeInput(value=p.encode_value(value))


def what_was_seen(request: Request, built: BuildResult | None) -> str:
    """A line on the build, for a verdict without a GPU."""
    compiled = () if built is None else (*built.extensions, *built.kernels)
    parts = [f"it compiles ({_listed(compiled)})"] if compiled else []
    later = [AT_THE_LAUNCH[language] for language in request.languages if language in AT_THE_LAUNCH]
    if later:
        parts.append(f"{_listed(later)} compile{'s' if len(later) == 1 else ''} at the first call, on the GPU")
    note = "" if built is None else built.not_compiled
    if note:
        parts.append(f"not all of it was compiled: {note[:MAX_QUOTED]}")
    return "; ".join(parts) or "it has no code of its own to compile"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
