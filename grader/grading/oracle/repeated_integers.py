"""Draws inputs in which independent integers repeat.

Of a few indices into a large table, hardly any two are equal in a draw, and a backward that overwrites the gradient of
a row that was read twice is right for most draws. Integers of `torch.randint` are independent if the problem makes
nothing else of them: then a draw in which some repeat is one of the problem's own draws too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

KEEPING = frozenset(
    {"to", "cpu", "cuda", "long", "int", "view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "clone"}
    | {"detach", "__getitem__"}
)
"""Functions whose results hold the same integers, or some of them."""
DESCRIBING = frozenset({"__get__", "size", "dim", "numel", "nelement", "element_size", "is_floating_point", "stride"})
"""Functions whose results depend on no element."""


def draw_with_repeats(make_inputs: Callable[[], Sequence[Any]]) -> list[Any]:
    """The inputs of a draw, with a share of the independent integers replaced by others of their tensor."""
    with _Origins() as origins:
        inputs = list(make_inputs())
    independent = origins.independent(inputs)
    return [_with_repeats(value) if id(value) in independent else value for value in inputs]


class _Origins(TorchFunctionMode):
    """Follows the integers of each call of `torch.randint` to the tensors that hold them, until another use."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, tuple[torch.Tensor, int]] = {}
        """Tensors by id, which stays theirs as they are kept, with the number of the call that drew their integers."""
        self._used: set[int] = set()
        """Calls whose integers something else depends on."""

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function, and note what it makes of drawn integers."""
        result = func(*args, **(kwargs or {}))
        integers = isinstance(result, torch.Tensor) and not (result.is_floating_point() or result.is_complex())
        if func is torch.randint:
            if integers:
                self._held[id(result)] = result, len(self._held)
            return result
        calls = set(self._calls(tree_leaves((args, kwargs))))
        if calls and func.__name__ not in DESCRIBING:
            if integers and func.__name__ in KEEPING and len(calls) == 1:
                self._held[id(result)] = result, calls.pop()
            else:
                self._used |= calls
        return result

    def independent(self, inputs: Sequence[object]) -> set[int]:
        """The ids of inputs on whose integers nothing else depends, no other input either."""
        times = Counter(self._calls(inputs))
        alone = {call for call, count in times.items() if count == 1 and call not in self._used}
        return {id(value) for value in inputs if not alone.isdisjoint(self._calls([value]))}

    def _calls(self, values: Iterable[object]) -> list[int]:
        return [self._held[id(value)][1] for value in values if id(value) in self._held]


def _with_repeats(value: torch.Tensor) -> torch.Tensor:
    """A quarter of the elements, one at least, equal to others of the rest."""
    flat = value.flatten()
    order = torch.randperm(len(flat), device=flat.device)
    count = -(-len(flat) // 4)
    to, rest = order[:count], order[count:]
    if len(rest):
        flat = flat.index_put((to,), flat[rest[torch.randint(len(rest), (count,), device=flat.device)]])
    return flat.view(value.shape)
