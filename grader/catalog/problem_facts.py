"""Facts about a problem: its variants, its operands, and which of them have gradients."""

from __future__ import annotations

from typing import Literal

from grader.verdict.value import Value


class Operand(Value):
    """An input, parameter or output of the reference."""

    name: str
    kind: Literal["input", "parameter", "output"]
    shape: tuple[int, ...] | None
    """None for a value that is not a tensor."""
    dtype: str
    gradient: bool
    """Whether a submission must produce a gradient for it (of an output: take one)."""
    why_no_gradient: str | None = None


class ProblemFacts(Value):
    """One line of `grader problems`."""

    id: str
    path: str
    variants: tuple[str, ...] = ()
    forward: bool = False
    backward: bool = False
    why_not: str | None = None
    """Why the forward or the backward cannot be graded."""
    operands: tuple[Operand, ...] = ()
    """At the sizes of the full variant."""
