"""Questions about a case that the reference answers once, and values that are made of it once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle

_Answer = TypeVar("_Answer")
_Others = ParamSpec("_Others")
_Ask = Callable[Concatenate[Oracle, Case, _Others], _Answer]


def remembered(ask: _Ask[_Others, _Answer]) -> _Ask[_Others, _Answer]:
    """A question about a case that the reference answers once for each mode and further argument."""
    return _once(ask, derived=False)


def derived(ask: _Ask[_Others, _Answer]) -> _Ask[_Others, _Answer]:
    """Values that are made of a case's, once: at full size they take gigabytes, and go when its own go."""
    return _once(ask, derived=True)


def once(case: Case, key: Hashable, ask: Callable[[], _Answer], *, derived: bool = False) -> _Answer:
    """The answer to a question about a case in its mode, asked once for each key."""
    answers = case.answers.derived if derived else case.answers.kept
    if (case.training, key) not in answers:
        answers[case.training, key] = ask()
    answer: _Answer = answers[case.training, key]
    return answer


def _once(ask: _Ask[_Others, _Answer], *, derived: bool) -> _Ask[_Others, _Answer]:
    @wraps(ask)
    def answer(oracle: Oracle, case: Case, /, *others: _Others.args, **named: _Others.kwargs) -> _Answer:
        key = (ask, others, tuple(named.items()))
        return once(case, key, partial(ask, oracle, case, *others, **named), derived=derived)

    return answer
