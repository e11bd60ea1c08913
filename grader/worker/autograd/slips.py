"""Mistakes of hand-written backwards, made in the reference: another operator or operand.

A candidate whose gradient is that of a slip has made this mistake. Each run makes one slip; its number says which.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from torch._decomp import decomposition_table

from grader.worker.autograd.engine import OperatorMode

FILLS = ("arange", "empty", "fill", "full", "new_", "ones", "zero")
"""Begin the names of operators whose results no input decides."""
DERIVATIVES = ("_backward", "_backward_data")
"""End the names of derivatives, which are several steps in a kernel."""
FLAGS = ("align_corners", "count_include_pad", "is_causal", "log_input", "log_target", "scale_grad_by_freq")
"""Arguments that may be turned. Others, as a norm's `train`, decide which tensors there are: without one of them, an
operator ends the process."""
Slips = Iterator[tuple[str, Callable[[], Any]]]
"""What is done, in words that follow "the reference with", and the operator's result then."""


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
        for at, of in enumerate(args):
            if _is_float(of):
                what = f"what {call} takes as `{function._schema.arguments[at].name}`"
                self.named.setdefault(of.data_ptr(), (what, of))
        if _is_float(result):
            self.named[result.data_ptr()] = f"the result of {call}", result

    def add_taken(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Record what a call took, in a forward or a backward."""
        if args and _is_float(result) and _is_float(args[0]) and result.shape == args[0].shape:
            self.taken[result.data_ptr()] = name, args[0], result

    def name_of(self, value: object) -> str:
        """The words for a tensor of the forward in a message; empty for another."""
        known = self.named.get(value.data_ptr()) if isinstance(value, torch.Tensor) else None
        return known[0] if known is not None and _alike(known[1], value) else ""

    def others(self, value: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields what a kernel may take in its place: other tensors of its shape, and 1 less a share."""
        own = self.name_of(value)
        if not own or value.numel() == 1:
            return
        if bool(((value > 0) & (value < 1)).all()):
            yield f"1 less {own}", 1 - value
        for address, (what, other) in self.named.items():
            if address != value.data_ptr() and _alike(other, value):
                yield what, other


class Counted:
    """Numbers what could go wrong, and chooses one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._next = 0
        self.name = ""
        """What went wrong; empty if there was nothing of that number."""

    def chosen(self, name: str) -> bool:
        """Whether this is it."""
        self._next += 1
        if self._next - 1 == self._number:
            self.name = name
        return self._next - 1 == self._number


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


class Operators(OperatorMode):
    """Does one thing wrong in the operators of a backward."""

    def __init__(self, number: int, sources: Sources, *, exchanged: bool = False) -> None:
        """With `exchanged`, what goes wrong is that a tensor of the forward stands for another."""
        super().__init__()
        self._sources, self._exchanged = sources, exchanged
        self._counted = Counted(number)
        self._left_out: tuple[str, str] | None = None
        """Of which operator, and where, each call is left out."""
        self._kinds: set[tuple[str, str]] = set()
        self._place = "the backward"
        """What the operators belong to, in a message."""

    @property
    def name(self) -> str:
        """The slip, if there was one."""
        return self._counted.name

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, function.overloadpacket.__name__
        in_place, plain = function._schema.is_mutable, _out_of_place(function)
        given = (args[0].clone(), *args[1:]) if in_place and args and _is_float(args[0]) else args
        result = function(*args, **kwargs)
        if name.startswith(FILLS) or plain is None or not any(map(_is_float, _all(result))):
            return result
        wrong = self._wrong(name.rstrip("_"), plain, given, kwargs, result)
        if wrong is not None:
            return args[0].copy_(wrong) if in_place else wrong
        if not function.is_view:
            self._sources.add_taken(name, given, result)
        steps = decomposition_table.get(function) if name.endswith(DERIVATIVES) else None
        return result if self.name or steps is None else self._by_steps(name, partial(steps, *args, **kwargs), result)

    def _by_steps(self, name: str, steps: Callable[[], Any], right: Any) -> Any:
        """The result of a derivative by its steps, of which one may go wrong; else the right one."""
        outside, self._place = self._place, f"`{name}`"
        try:
            with self:
                found = steps()
        except Exception:  # a step that does not take what another made
            return right
        finally:
            self._place = outside
        return found if self.name and all(map(_alike, _all(found), _all(right))) else right

    def _wrong(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Any:
        """What the slip makes of this call; None if it is another's turn, or the operator refuses."""
        alone = [of for of in args[:1] if _is_float(of) and _alike(of, right)]
        kind = name, self._place
        if self._exchanged:
            alone = []
        if alone and kind not in self._kinds and self._counted.chosen(f"every `{name}` of {self._place} left out"):
            self._left_out = kind
        self._kinds.add(kind)
        if alone and kind == self._left_out:
            return alone[0].clone()
        slips = self._exchanges if self._exchanged else self._slips
        for what, compute in slips(name, function, args, kwargs, right):
            if self._counted.chosen(what):
                try:
                    wrong = compute()
                except Exception:  # an operator that does not take it
                    return None
                return wrong if all(map(_alike, _all(wrong), _all(right))) else None
        return None

    def _slips(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Slips:
        """What may go wrong in one call."""
        operands = [(at, of) for at, of in enumerate(args) if _is_float(of)]
        for at, of in operands:
            others = [other for other, _ in operands if other != at]
            if _alike(of, right) and (others or function.is_view):
                left = " and ".join(self._described(function, other, args) for other in others)
                yield f"a `{name}` of {self._place} {f'without {left}' if left else 'left out'}", of.clone
        if function.is_view:
            return
        for at, of in operands:
            where = f"{_argument(function, at, args)} of `{name}` in {self._place}"
            source = self._sources.taken.get(of.data_ptr())
            if source is not None and source[2].shape == of.shape:
                taken = partial(_with, function, args, kwargs, at, source[1])
                yield f"what `{source[0]}` takes in place of its result, as {where}", taken
            for how, turned in _turned(of, windows="conv" in name):
                yield f"{where} {how}", partial(_with, function, args, kwargs, at, turned)
        for at, flag in enumerate(args):
            if type(flag) is bool and function._schema.arguments[at].name in FLAGS:
                what = f"`{function._schema.arguments[at].name}` of `{name}` in {self._place} set to {not flag}"
                yield what, partial(function, *args[:at], not flag, *args[at + 1 :], **kwargs)

    def _exchanges(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Slips:
        """Other tensors of the forward in one call."""
        for at, of in enumerate(args):
            if not function.is_view and _is_float(of):
                for what, other in self._sources.others(of):
                    where = f"as {_argument(function, at, args)} of `{name}` in {self._place}"
                    taken = partial(_with, function, args, kwargs, at, other)
                    yield f"{what} in place of {self._sources.name_of(of)}, {where}", taken

    def _described(self, function: Any, at: int, args: tuple[Any, ...]) -> str:
        """An operand with what it is in the forward."""
        known = self._sources.name_of(args[at])
        return f"{_argument(function, at, args)}{f' ({known})' if known else ''}"


def _turned(value: torch.Tensor, *, windows: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensor with two dimensions of one extent exchanged, and flipped along those of a window if it has one."""
    pairs = itertools.combinations(range(value.dim()), 2)
    swaps = [(one, two) for one, two in pairs if value.shape[one] == value.shape[two] > 1]
    moving = [dim for dim in range(2, value.dim()) if value.shape[dim] > 1] if windows else []
    flips = [chosen for count in range(len(moving) + 1) for chosen in itertools.combinations(moving, count)]
    for flip, swap in itertools.product(flips, [(), *swaps]):
        turned = value.flip(flip).transpose(*swap) if swap else value.flip(flip)
        how = [f"transposed in dimensions {swap[0]} and {swap[1]}"] if swap else []
        how += [f"flipped along dimension{'s' * (len(flip) > 1)} {' and '.join(map(str, flip))}"] if flip else []
        if how:
            yield " and ".join(how), turned


def _with(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: int, other: torch.Tensor) -> Any:
    """The operator's result with another operand."""
    return function(*args[:at], other, *args[at + 1 :], **kwargs)


def _out_of_place(function: Any) -> Any:
    """The operator that returns what this one writes into its first operand; None without one."""
    if not function._schema.is_mutable:
        return function
    namespace, _, name = function._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None) if name.endswith("_") else None
    return getattr(packet, function._overloadname, None)


def _argument(function: Any, at: int, args: tuple[Any, ...]) -> str:
    """An operator's operand in a message: by its name, with its shape."""
    named = function._schema.arguments[at].name
    shape = f" of shape {list(args[at].shape)}" if isinstance(args[at], torch.Tensor) else ""
    return f"`{named}`{shape}"


def _all(result: Any) -> Sequence[Any]:
    """The results of an operator."""
    return result if isinstance(result, tuple | list) else (result,)


def _alike(one: object, other: object) -> bool:
    """Whether these are floating-point tensors of one shape and dtype, or neither is one."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return not isinstance(one, torch.Tensor) and not isinstance(other, torch.Tensor)
    return one.shape == other.shape and one.dtype == other.dtype and one.is_floating_point()


def _is_float(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
