"""Cases with equal parts of parameters or of an input exchanged, such as gates of a recurrent layer."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from grader.grading.oracle.case import Case, is_input
from grader.grading.oracle.values import is_float


class Exchange(NamedTuple):
    """A case in which two parts of some tensors stand in each other's place."""

    what: str
    """Follows "the reference with"."""
    case: Case


def exchanges(case: Case) -> Iterator[Exchange]:
    """Yields exchanges in an input, and in the tensors of one layer, or of all, with an extent in common."""
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
                yield Exchange(f"parts {one} and {other} of {count} exchanged in {case.shown(tensors)}", changed)


def _groups(case: Case) -> Iterator[tuple[int, Sequence[str]]]:
    """Extents, and the tensors that have a dimension of that extent."""
    found: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    floats = [name for name, value in case.state.items() if is_float(value)]
    for name in [*floats, *(name for name in case.wrt if is_input(name))]:
        # The rows of an input's first dimension are a batch, and all of them are treated alike.
        for extent in dict.fromkeys(case.operand(name).shape[is_input(name) :]):
            layer = name if is_input(name) else name.rpartition(".")[0]
            for of in (layer,) if is_input(name) else (layer, ""):
                if extent > 1 and name not in found[of, extent]:
                    found[of, extent].append(name)
    groups = {(extent, tuple(tensors)) for (_, extent), tensors in found.items()}
    yield from sorted(groups, key=lambda group: -len(group[1]))
