"""The tensors of a forward, which a mistake in the backward may take for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

import torch

from grader.worker.autograd.engine import OperatorMode


class Sources:
    """The tensors of a forward, which are kept so that their addresses stay."""

    def __init__(self, leaves: Mapping[str, torch.Tensor] = MappingProxyType({})) -> None:
        """`leaves` are inputs and parameters by name."""
        self.taken: dict[int, tuple[str, torch.Tensor, torch.Tensor]] = {}
        """By the address of an operator's result: its name, what it took, and the result, both of one shape."""
        self.named = {leaf.data_ptr(): (f"`{name}`", leaf) for name, leaf in leaves.items()}
        """By address: a tensor, and what it is in a message."""
        self._calls = Counter[str]()

    def add(self, function: Any, args: tuple[Any, ...], result: Any) -> None:
        """Record a call of the forward, unless its result is a view."""
        if function.is_view:
            return
        name = function.overloadpacket.__name__
        self.add_taken(name, args, result)
        self._calls[name] += 1
        call = f"`{name}`" if self._calls[name] == 1 else f"`{name}` number {self._calls[name]}"
        for at, operand in enumerate(args):
            if is_float(operand):
                what = f"what {call} takes as `{function._schema.arguments[at].name}`"
                self.named.setdefault(operand.data_ptr(), (what, operand))
        if is_float(result):
            self.named[result.data_ptr()] = f"the result of {call}", result

    def add_taken(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Record what a call took, in a forward or a backward."""
        if args and is_float(result) and is_float(args[0]) and result.shape == args[0].shape:
            self.taken[result.data_ptr()] = name, args[0], result

    def name_of(self, value: object) -> str:
        """The words for a tensor of the forward in a message; empty for another."""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return ""
        known = self.named.get(value.data_ptr())
        return known[0] if known is not None and alike(known[1], value) else ""

    def others(self, value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields what a kernel may take in its place: 1 less a share, its 16-bit value, others of its shape."""
        own = self.name_of(value)
        if not own or value.numel() == 1:
            return
        if bool(((value > 0) & (value < 1)).all()):
            yield f"1 less {own}", 1 - value
        for narrow in (torch.bfloat16, torch.float16):
            yield f"{own} rounded to {str(narrow).removeprefix('torch.')}", value.to(narrow).to(value)
        for address, (what, other) in self.named.items():
            if address != value.data_ptr() and alike(other, value):
                yield what, other


class Recorded(OperatorMode):
    """Keeps what operators of a forward took and returned."""

    def __init__(self, leaves: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.sources = Sources(leaves)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.sources.add(function, args, result)
        return result


def alike(one: object, other: object) -> bool:
    """Whether these are floating-point tensors of one shape and dtype, or neither is one."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return not isinstance(one, torch.Tensor) and not isinstance(other, torch.Tensor)
    return one.shape == other.shape and one.dtype == other.dtype and one.is_floating_point()


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Whether the value is a dense floating-point tensor; a sparse one has no address."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_floating_point()
