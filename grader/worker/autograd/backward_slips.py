"""Mistakes of hand-written backwards, made in the reference: another operator or operand.

A candidate whose gradient is that of a slip has made this mistake. Each run makes one slip.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch._decomp import decomposition_table

from grader import protocol as p
from grader.worker.autograd.engine import OperatorMode
from grader.worker.autograd.epsilons import epsilons
from grader.worker.autograd.lost_terms import WHOLE, of_many
from grader.worker.autograd.one_slip import SlipChoice, Slips, with_operand
from grader.worker.autograd.sources import Sources, alike, is_float
from grader.worker.autograd.tails import tails

FILLS = ("arange", "empty", "fill", "full", "new_", "ones", "zero")
"""Begin the names of operators whose results no input decides."""
DERIVATIVES = ("_backward", "_backward_data")
"""End the names of derivatives, which are several steps in a kernel."""
FLAGS = (
    "accumulate",
    "align_corners",
    "count_include_pad",
    "is_causal",
    "log_input",
    "log_target",
    "scale_grad_by_freq",
)
"""Arguments that may be turned. Others, as a norm's `train`, decide which tensors there are: without one of them, an
operator ends the process."""
SIGNS = {"add": torch.ops.aten.sub.Tensor, "sub": torch.ops.aten.add.Tensor}
"""What takes its second operand with the other sign."""
SIGN_DECIDES = ("threshold_backward", "leaky_relu_backward")
"""Derivatives for which the sign of their second operand decides."""
USES = ", such as those that sum what several uses of a tensor give it"
"""Follows the additions of a backward: most of them are autograd's own, which no line of the forward shows."""
_NO_SYMPY = ModuleType("sympy")
vars(_NO_SYMPY).update(Basic=type("Basic", (), {}))


class BackwardSlips(OperatorMode):
    """Does one thing wrong in the operators of a backward."""

    def __init__(self, slip: p.Slip, sources: Sources) -> None:
        """`slip` is within the backward, turned or of operands."""
        super().__init__()
        self._sources, self._within = sources, slip.within
        kinds = {"backward": self._omissions, "turned": self._turned, "operands": self._exchanges}
        self._of_call = kinds[slip.within]
        self._choice = SlipChoice(slip)
        self._left_out: tuple[str, str] | None = None
        """The operator and its place of which every call is left out."""
        self._kinds: set[tuple[str, str]] = set()
        self._place = WHOLE
        """What the operators belong to, in a message."""

    @property
    def name(self) -> str:
        """The slip, if there was one."""
        return self._choice.name

    @property
    def slips(self) -> tuple[p.PossibleSlip, ...]:
        """The slips that there could be."""
        return self._choice.possible

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, function.overloadpacket.__name__
        in_place, plain = function._schema.is_mutable, _out_of_place(function)
        given = (args[0].clone(), *args[1:]) if in_place and args and is_float(args[0]) else args
        result = function(*args, **kwargs)
        if name == "_conj" and self._within == "backward":
            left = self._choice.chosen(f"a `conj` of {self._place} left out")
            return torch.ops.aten.alias(args[0]) if left else result
        if name.startswith(FILLS) or plain is None or not any(map(is_float, _all(result))):
            return result
        wrong = self._wrong(name.rstrip("_"), plain, given, kwargs, result)
        if wrong is not None:
            return args[0].copy_(wrong) if in_place else _laid_out(wrong, result)
        if not function.is_view:
            self._sources.add_taken(name, given, result)
        steps = decomposition_table.get(function) if name.endswith(DERIVATIVES) else None
        return result if self.name or steps is None else self._by_steps(name, partial(steps, *args, **kwargs), result)

    def _by_steps(self, name: str, steps: Callable[[], Any], right: Any) -> Any:
        """The result of a derivative by its steps, of which one may go wrong; else the right one."""
        outside, self._place = self._place, f"`{name}`"
        try:
            with self, _without_sympy():
                found = steps()
        except Exception:  # a step that does not take what another made
            return right
        finally:
            self._place = outside
        return found if self.name and all(map(alike, _all(found), _all(right))) else right

    def _wrong(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Any:
        """What the slip makes of this call; None if it is another's turn, or the operator refuses."""
        kind = name, self._place
        alone = [
            operand
            for operand in args[:1]
            if self._within == "backward" and is_float(operand) and _stands_for(operand, right)
        ]
        uses = USES if kind == ("add", WHOLE) else ""
        if alone and kind not in self._kinds and self._choice.chosen(f"every `{name}` of {self._place} left out{uses}"):
            self._left_out = kind
        self._kinds.add(kind)
        if alone and kind == self._left_out:
            return alone[0].clone()
        for what, compute in self._of_call(name, function, args, kwargs, right):
            if self._choice.chosen(what):
                try:
                    wrong = compute()
                except Exception:  # an operator that does not take it
                    return None
                in_steps = self._place != WHOLE  # their result is compared at their end
                return wrong if in_steps or all(map(alike, _all(wrong), _all(right))) else None
        return None

    def _omissions(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Slips:
        """What may be left out of one call."""
        operands = [(at, operand) for at, operand in enumerate(args) if is_float(operand)]
        for at, operand in operands:
            others = [other for other, _ in operands if other != at]
            if _stands_for(operand, right) and (others or function.is_view):
                left = " and ".join(self._described(function, other, args) for other in others)
                what = f"a `{name}` of {self._place} {f'without {left}' if left else 'left out'}"
                masked = name == "where" and at == 1 and args[2].dim() == 0 and not bool(args[2])
                yield f"the mask of {self._step()} left out of {self._place}" if masked else what, operand.clone
        if name == "sum" and self._place != WHOLE and operands and operands[0][1].dim() == right.dim():
            yield f"a `sum` of {self._place} left out", operands[0][1].clone  # it is broadcast
        if name in SIGNS and len(operands) > 1:
            other = self._described(function, operands[1][0], args)
            yield f"the other sign of {other} in a `{name}` of {self._place}", partial(SIGNS[name], *args, **kwargs)
        if name in SIGN_DECIDES:
            turned = partial(with_operand, function, args, kwargs, 1, -args[1])
            yield f"`{name}` of {self._place} where `self` has the other sign", turned
        if name in ("mul", "div") and len(operands) == 1 and type(args[1]) in (int, float):
            yield f"a `{name}` by {args[1]:.6g} of {self._place} left out", operands[0][1].clone
        if not function.is_view:
            yield from of_many(name, self._place, args, kwargs, right)
        for what, compute in tails(name, function, args, kwargs):
            yield f"a {what} in {self._place}", compute

    def _turned(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Slips:
        """Other values for one operand of one call, and flags."""
        for at, operand in enumerate(args) if not function.is_view else ():
            if not is_float(operand):
                continue
            where = f"{_argument(function, at, args)} of `{name}` in {self._place}"
            source = self._sources.taken.get(operand.data_ptr())
            if source is not None and source[2].shape == operand.shape:
                taken = partial(with_operand, function, args, kwargs, at, source[1])
                yield f"what `{source[0]}` takes in place of its result, as {where}", taken
            for how, turned in _turned(operand, windows="conv" in name):
                yield f"{where} {how}", partial(with_operand, function, args, kwargs, at, turned)
        for at, flag in enumerate(args):
            if type(flag) is bool and function._schema.arguments[at].name in FLAGS:
                what = f"`{function._schema.arguments[at].name}` of `{name}` in {self._place} set to {not flag}"
                yield what, partial(function, *args[:at], not flag, *args[at + 1 :], **kwargs)
        for what, compute in epsilons(name, function, args, kwargs):
            yield f"{what} in {self._place}", compute

    def _exchanges(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], right: Any) -> Slips:
        """Other tensors of the forward in one call."""
        for at, operand in enumerate(args):
            if not function.is_view and is_float(operand):
                for what, other in self._sources.others(operand):
                    where = f"as {_argument(function, at, args)} of `{name}` in {self._place}"
                    taken = partial(with_operand, function, args, kwargs, at, other)
                    yield f"{what} in place of {self._sources.name_of(operand)}, {where}", taken

    def _step(self) -> str:
        """The forward's function that the engine differentiates, or the derivative that runs by its steps."""
        node = torch._C._current_autograd_node()
        if self._place != WHOLE or node is None:
            return self._place
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"Backward\d*$", "", node.name())).lower()
        return f"`{words}`"

    def _described(self, function: Any, at: int, args: tuple[Any, ...]) -> str:
        """An operand with what it is in the forward."""
        known = self._sources.name_of(args[at])
        return f"{_argument(function, at, args)}{f' ({known})' if known else ''}"


@contextlib.contextmanager
def _without_sympy() -> Iterator[None]:
    """Keeps a decomposition from importing sympy for a comparison of types, which takes longer than all slips."""
    if "sympy" in sys.modules:
        yield
        return
    sys.modules["sympy"] = _NO_SYMPY
    try:
        yield
    finally:
        del sys.modules["sympy"]


def _stands_for(operand: torch.Tensor, result: Any) -> bool:
    """Whether an operand can be the result, and is not already, as `detach` returns it."""
    if not isinstance(result, torch.Tensor) or not alike(operand, result):
        return False
    return operand.data_ptr() != result.data_ptr() or operand.stride() != result.stride()


def _laid_out(wrong: Any, right: Any) -> Any:
    """The wrong result with the strides of the right one, which a view behind it may need."""
    both = isinstance(wrong, torch.Tensor) and isinstance(right, torch.Tensor) and wrong.shape == right.shape
    return torch.empty_like(right).copy_(wrong) if both and wrong.stride() != right.stride() else wrong


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
