"""The reference's float64 results with one mistake in them, one mistake after another.

Gradients: operands taken for constants and masks the other way round (`worker/autograd/detached.py`), then operators of
the backward left out (`worker/autograd/backward_slips.py`), then options, dimensions and functions other than given
(`worker/autograd/forward_slips.py`), then operands of the backward that are transposed, flipped, plus an epsilon, or
another tensor, then a forward that is computed again with such a slip or without a step, then a grad_output in another
order. Outputs: operands exchanged, then other options, dimensions and functions, then parts of parameters or of an
input exchanged. A candidate whose result is one of these has made that mistake.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.grading.budget import LEAST_SECONDS
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL64, Evaluation, Pass
from grader.grading.oracle.exchanges import Exchange, of_operands, of_parts
from grader.grading.oracle.oracle import Oracle

Within = Literal["forward", "detached", "backward", "turned", "operands", "recomputed"]
WHERE: Mapping[Within, str] = {
    "detached": "let the gradient flow there as the reference does",
    "backward": "do that step of the backward as the reference does",
    "forward": "do there what the reference does, in the backward too",
    "turned": "do that step of the backward as the reference does",
    "operands": "use in that step what the reference uses",
    "recomputed": "compute it in the backward as in the forward, or save it there",
}
"""Where a slip is made, and the remedy; the commonest first."""


LAST = ("takes only index", "` before `")
"""Stand in the names of slips that may look like a plainer one: a part of a sum for all of it, where the rest is zero,
and two steps in another order for one left out, where its factor is small."""


class Slipped(NamedTuple):
    """A mistake, and the results with it."""

    what: str
    """Follows "is that"."""
    remedy: str
    gradients: Mapping[str, torch.Tensor | None]
    outputs: Mapping[str, torch.Tensor]
    calls: str = ""
    """In which of several calls of a function the mistake is made: follows `what`."""

    @property
    def text(self) -> str:
        """The mistake and its calls, which no other has."""
        return self.what + self.calls


def slips(oracle: Oracle, case: Case, wrt: Collection[str]) -> Iterator[Slipped]:
    """Yields the gradients of `wrt` with as many slips as fit into the seconds of a stage.

    A submission that needs them is not timed. None without a float64 reference. Raises ReferenceLost,
    ReferenceOutOfMemory.
    """
    if not _runs(oracle, case):
        return
    chosen = [name for name in case.wrt if name in wrt]
    plain = replace(Pass.of(case, MODEL64), wrt=chosen, substitute="spelled_out", change_in=("forward", "backward"))
    end = oracle.clock() + oracle.budget.stage_seconds
    for left, within in zip(range(len(WHERE), 0, -1), WHERE, strict=True):
        # Each has its share of the time that is left: a deep network has many slips of each kind.
        now = oracle.clock()
        yield from _of_kind(oracle, case, plain, within, now + (end - now) / left)
    yield from _reordered(oracle, case, plain)


def output_slips(oracle: Oracle, case: Case) -> Iterator[Slipped]:
    """Yields those of a forward, without gradients, in the seconds of an experiment; otherwise as `slips`."""
    if not _runs(oracle, case):
        return
    plain = replace(Pass.of(case, MODEL64, backward=False), substitute="spelled_out", change_in=("forward",))
    end = oracle.clock() + oracle.budget.experiment_seconds
    yield from _exchanged(oracle, case, of_operands(case), end)  # few, and plain
    for slip in _of_kind(oracle, case, plain, "forward", end):
        yield slip._replace(remedy="do there what the reference does")
    yield from _exchanged(oracle, case, of_parts(case), end)


def _exchanged(oracle: Oracle, case: Case, exchanges: Iterator[Exchange], end: float) -> Iterator[Slipped]:
    """The outputs with each exchange, until the end of the time."""
    for exchange in exchanges:
        if oracle.clock() > end:
            return
        changed = Pass.of(exchange.case, MODEL64, backward=False)
        for found in _answers(oracle, case, [changed]):
            if found is not None:
                yield Slipped(f"of the reference with {exchange.what}", exchange.remedy, {}, found.outputs)


def _runs(oracle: Oracle, case: Case) -> bool:
    return case.values_comparable and oracle.runs_float64(case) and not oracle.is_slow(case)


def _of_kind(oracle: Oracle, case: Case, plain: Pass, within: Within, end: float) -> Iterator[Slipped]:
    """The slips of a kind: first each one in all calls at once, then in those of a line in a loop, then in one call."""

    def changed_by(slip: p.Slip) -> Pass:
        return replace(plain, change=slip)

    listed = next(_answers(oracle, case, [changed_by(p.Slip(within=within))]), None)
    possible = listed.slips if listed is not None else ()
    chosen = _ways(possible, within)
    chosen.sort(key=lambda one: any(words in one[0].what for words in LAST))
    while chosen and oracle.clock() < end:
        fitting = int((end - oracle.clock()) / max(oracle.costs.seconds_of(case), LEAST_SECONDS))
        tried = chosen[: min(max(fitting, 1), 16)]  # in one job
        chosen = chosen[len(tried) :]
        passes = [changed_by(slip) for slip, _ in tried]
        refused = 0
        for (slip, calls), found in zip(tried, _answers(oracle, case, passes), strict=True):
            refused += found is None
            if found is not None and found.changed:
                what = f"of the reference with {_worded(case, slip)}"
                what += " in a recomputed forward" if within == "recomputed" else ""
                yield Slipped(what, WHERE[within], found.gradients, found.outputs, calls)
        if refused == len(tried) > 1:  # whatever changes: the fault is not in the slips
            return


def _ways(possible: Sequence[p.PossibleSlip], within: Within) -> list[tuple[p.Slip, str]]:
    """The slips to try, each with the calls in which it is made, in words that follow those of a `Slipped`."""

    def made(one: p.PossibleSlip, **which: int) -> p.Slip:
        return p.Slip(within=within, what=one.what, **which)

    def in_all(times: int) -> str:
        return "" if times == 1 else f", in {'both' if times == 2 else f'all {times}'} calls"

    ways = [(made(one), in_all(one.times)) for one in possible]
    for one in possible:
        if 1 < len(one.lines) < one.times:
            for place, line in enumerate(one.lines):
                alike = [at for at, other in enumerate(one.lines) if other == line]
                which = f", call {alike.index(place) + 1} of {len(alike)} there" if len(alike) > 1 else ""
                ways.append((made(one, place=place), f", in line {line} of its source{which}"))
    turns = max((one.times for one in possible), default=0)
    return ways + [
        (made(one, turn=turn), f", in call {turn + 1} of {one.times}")
        for turn in range(turns)
        for one in possible
        if turn < one.times > 1
    ]


def _worded(case: Case, slip: p.Slip) -> str:
    """A slip with the names that operands have in messages."""
    what = slip.what
    for name, shown in case.operand_names.items():
        what = what.replace(f"`{name}`", f"`{shown}`")
    return what


def _answers(oracle: Oracle, case: Case, passes: Sequence[Pass]) -> Iterator[Evaluation | None]:
    """The evaluations of these passes; None for one that the reference refuses, as a shape that a slip made."""
    answered = 0
    try:
        for found in oracle.ask(case, passes):
            answered += 1
            yield found
    except ReferenceRefused:
        if len(passes) == 1:
            yield None
            return
        for one in passes[answered:]:
            yield from _answers(oracle, case, [one])


def _reordered(oracle: Oracle, case: Case, plain: Pass) -> Iterator[Slipped]:
    """Gradients for a grad_output that is flipped, shifted or transposed; also with the gradient moved back.

    The latter is what a scan in the wrong direction computes. Of several outputs only the largest is reordered.
    """
    name, given = max(case.cotangents.items(), key=lambda one: one[1].numel())
    grad = "grad_output" if len(case.cotangents) == 1 else f"the grad_output of {name}"
    moves = list(_moves(given.shape))
    passes = [replace(plain, cotangents={**case.cotangents, name: move.apply(given)}) for move in moves]
    for move, found in zip(moves, _answers(oracle, case, passes), strict=True):
        if found is None:
            continue
        remedy = f"read {grad} in its own order"
        yield Slipped(f"for {grad} {move.how}", remedy, found.gradients, found.outputs)
        if move.flips is not None:
            remedy = f"check in which direction the backward goes along dimension {move.flips}"
            last = move.flips - given.dim()
            back = {key: value for key, value in found.gradients.items() if value is not None and value.dim() >= -last}
            back = {key: value.flip(last) for key, value in back.items() if value.shape[last] == given.shape[last]}
            yield Slipped(f"for {grad} {move.how}, and then {move.how} itself", remedy, back, found.outputs)


class _Move(NamedTuple):
    """A reordering of a tensor, and how it is called."""

    how: str
    apply: Callable[[torch.Tensor], torch.Tensor]
    flips: int | None = None
    """The dimension along which it flips, if it does."""


def _moves(shape: Sequence[int]) -> Iterator[_Move]:
    for dim in (dim for dim, extent in enumerate(shape) if extent > 1):
        yield _Move(f"flipped along dimension {dim}", partial(torch.flip, dims=(dim,)), flips=dim)
        for by in (1, -1) if shape[dim] > 2 else ():
            yield _Move(f"shifted by {by} along dimension {dim}", partial(torch.roll, shifts=by, dims=dim))
    for one, two in itertools.combinations(range(len(shape)), 2):
        if shape[one] == shape[two] > 1:
            yield _Move(f"transposed in dimensions {one} and {two}", partial(torch.transpose, dim0=one, dim1=two))
