"""A case with parameters of another draw: all, one after another, or a few elements.

What another draw has is what the reference takes. Together, parts of two draws may be something that it refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch

from grader.errors import ProblemError
from grader.grading import chance
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.input_structure import EDITS
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import derived
from grader.grading.oracle.values import is_differentiable


@dataclass(frozen=True)
class Change:
    """One of several changes of parameters and buffers, from one draw's to another's."""

    case: Case
    """As it is after the change."""
    changed: tuple[str, ...]
    """Names of those that it changes."""


@derived
def with_parameters_of(oracle: Oracle, case: Case, other: Case) -> Case:
    """The case with the parameters and buffers of another of its sizes, and the outputs for these."""
    return _with(oracle, case, other.state) or case


@derived
def one_after_another(oracle: Oracle, case: Case, other: Case) -> tuple[Change, ...]:
    """The case with more and more of another draw's parameters and buffers, and at the end with all.

    One at a time, in any order; of more than six, some of them, and then the others. A slow reference answers for one
    before all, and for none if it refuses all of the other draw's together. A state that it refuses is passed over.
    """
    whole = with_parameters_of(oracle, case, other)
    names = [name for name, value in case.state.items() if not torch.equal(value, other.state[name])]
    if whole.state is case.state or not names:
        return ()
    together = [name for name in names if not is_differentiable(case.state[name])]  # as the starts of rows and columns
    units = [[name] for name in names if name not in together] + ([together] if together else [])
    chance.draw.shuffle(units)
    before_all = 1 if oracle.is_slow(case) else min(5, max(1, CHECK_BYTES // max(case.nbytes, 1)))
    found, state, waiting = [], dict(case.state), list[str]()
    for unit in units[: min(before_all, len(units) - 1)]:
        waiting += unit
        mixed = _with(oracle, case, state | {name: other.state[name] for name in waiting})
        if mixed is not None:
            found.append(Change(mixed, tuple(waiting)))
            state |= {name: other.state[name] for name in waiting}
            waiting = []
    rest = tuple(name for name in names if state[name] is not other.state[name])
    return (*found, Change(whole, rest))


@derived
def with_few_elements_of(oracle: Oracle, case: Case, other: Case) -> Case | None:
    """The case with EDITS elements of each parameter from another draw; None if none or no room."""
    if 2 * case.state_bytes + case.nbytes > CHECK_BYTES:
        return None
    learned = oracle.traits(case).learned
    changed = {
        name: _edited(value, other.state[name])
        for name, value in case.state.items()
        if name in learned and is_differentiable(value) and value.numel() and not torch.equal(value, other.state[name])
    }
    return _with(oracle, case, {**case.state, **changed}) if changed else None


def _edited(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A copy with EDITS elements of another; never the first or the last, by which a sample most likely goes."""
    copy = value.clone(memory_format=torch.contiguous_format)
    end = 1 if value.numel() > 2 else 0
    for _ in range(EDITS):
        where = chance.draw.randrange(end, value.numel() - end)
        copy.view(-1)[where] = other.reshape(-1)[where]
    return copy


def _with(oracle: Oracle, case: Case, state: Mapping[str, torch.Tensor]) -> Case | None:
    """The case with this state and the outputs for it; None if the reference refuses it, or is not finite."""
    mixed = replace(case, state=oracle.traits(case).in_order(state))
    try:
        outputs = variations.outputs_of(oracle, mixed)
    except ProblemError:
        return None
    usual = ((output.reference64, case.outputs[name].reference64) for name, output in outputs.items())
    finite = all((value.isfinite() | ~due.isfinite()).all() for value, due in usual)
    return replace(mixed, outputs=outputs) if finite else None


def changed_names(before: Case, after: Case) -> Collection[str]:
    """The names of parameters and buffers that are other tensors in one case than in the other."""
    return {name for name, value in after.state.items() if value is not before.state.get(name)}
