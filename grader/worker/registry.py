"""The registry of step handlers: `@handles(Step)` registers a function, `carry_out` calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from grader.protocol import Result, Step
from grader.worker.session import Session

HANDLERS: dict[type[Step], Callable[[Session, Any], Result]] = {}

_S = TypeVar("_S", bound=Step)
_R = TypeVar("_R", bound=Result)


def handles(kind: type[_S]) -> Callable[[Callable[[Session, _S], _R]], Callable[[Session, _S], _R]]:
    """Register the decorated function for a kind of step.

    Raises ValueError if the kind has a handler already.
    """

    def register(handler: Callable[[Session, _S], _R]) -> Callable[[Session, _S], _R]:
        if kind in HANDLERS:
            raise ValueError(f"{kind.__name__} has two handlers: {HANDLERS[kind].__name__} and {handler.__name__}")
        HANDLERS[kind] = handler
        return handler

    return register


def carry_out(session: Session, step: Step) -> Result:
    """Carry out one step. Raises whatever its handler raises."""
    return HANDLERS[type(step)](session, step)
