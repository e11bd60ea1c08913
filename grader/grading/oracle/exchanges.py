"""Cases with operands in each other's place, or turned: what a submission makes of them by mistake."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from grader.grading.oracle.case import Case, is_input
from grader.grading.oracle.values import is_float


class Exchange(NamedTuple):
    """A case in which two operands or parts of them stand in each other's place, or one is turned."""

    what: str
    """Follows "the reference with"."""
    remedy: str
    case: Case


def of_operands(case: Case) -> Iterator[Exchange]:
    """Yields exchanges of inputs and of parameters, and parameters that are turned."""
    given = {f"input[{at}]": value for at, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    integers = {name: value for name, value in given.items() if value.dtype in (torch.int64, torch.int32)}
    for (one, first), (other, second) in itertools.combinations(integers.items(), 2):
        if first.shape == second.shape and first.dtype == second.dtype and _may_index_alike(first, second):
            changed = case.with_operand(one, second).with_operand(other, first)
            yield Exchange(f"{case.shown([one, other])} exchanged", "check which argument is which", changed)
    for kind in (True, False):
        operands = {name: case.operand(name) for name in case.wrt if is_input(name) is kind}
        remedy = f"check which {'argument' if kind else 'parameter'} is which"
        for (one, first), (other, second) in itertools.combinations(operands.items(), 2):
            if first.shape == second.shape and first.dtype == second.dtype:
                changed = case.with_operand(one, second).with_operand(other, first)
                yield Exchange(f"{case.shown([one, other])} exchanged", remedy, changed)
    for name, how, remedy, value in turned(case):
        yield Exchange(f"`{case.operand_names[name]}` {how}", remedy, case.with_operand(name, value))


def _may_index_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether each may stand for the other: on a GPU, whose context an index out of range ends, of one range."""
    on_cpu = one.is_cpu and other.is_cpu
    return bool(one.numel()) and (on_cpu or (one.aminmax() == other.aminmax()))


def turned(case: Case) -> Iterator[tuple[str, str, str, torch.Tensor]]:
    """Each parameter that is transposed or flipped: its name, how it is turned, the remedy and the value."""
    for name in case.wrt:
        if is_input(name) or (value := case.state[name]).dim() < 2:
            continue
        shown = case.operand_names[name]
        if value.shape[-1] == value.shape[-2] > 1:
            yield name, "transposed", f"check the order of the indices of `{shown}`", value.mT.contiguous()
        if value.dim() > 2:
            remedy = f"check the order in which the window of `{shown}` is read"
            yield name, "flipped", remedy, value.flip(tuple(range(2, value.dim())))


def of_parts(case: Case) -> Iterator[Exchange]:
    """Exchanges in an input, and in the tensors of one layer, or of all, with an extent in common."""
    remedy = "check the order in which the parts are taken"
    for extent, tensors in _groups(case):
        # The parts of a gated unit, of a GRU (or query, key and value), and of an LSTM.
        for count in (count for count in (2, 3, 4) if extent % count == 0):
            for one, other in itertools.combinations(range(count), 2):
                order = [{one: other, other: one}.get(part, part) for part in range(count)]
                changed = case
                for name in tensors:
                    value = case.operand(name)
                    parts = value.chunk(count, dim := value.shape.index(extent))
                    changed = changed.with_operand(name, torch.cat([parts[part] for part in order], dim))
                what = f"parts {one} and {other} of {count} exchanged in {case.shown(tensors)}"
                yield Exchange(what, remedy, changed)


def _groups(case: Case) -> Iterator[tuple[int, Sequence[str]]]:
    """Extents, and the tensors that have a dimension of that extent."""
    found: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    floats = [name for name, value in case.state.items() if is_float(value)]
    for name in [*floats, *(name for name in case.wrt if is_input(name))]:
        # The rows of an input's first dimension are a batch, and all of them are treated alike.
        for extent in dict.fromkeys(case.operand(name).shape[is_input(name) :]):
            layer = name if is_input(name) else name.rpartition(".")[0]
            for scope in (layer,) if is_input(name) else (layer, ""):
                if extent > 1 and name not in found[scope, extent]:
                    found[scope, extent].append(name)
    groups = {(extent, tuple(tensors)) for (_, extent), tensors in found.items()}
    yield from sorted(groups, key=lambda group: -len(group[1]))
