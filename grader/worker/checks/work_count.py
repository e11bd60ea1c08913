"""Counts the work that no implementation can avoid: floating-point operations and memory traffic.

All figures are lower bounds, because they bound the time of any implementation: reductions, normalizations, random
numbers and copies count as no operation, tiles of zeros in a matrix product neither, and intermediate results as no
memory traffic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from grader import protocol as p
from grader.worker.autograd.engine import OperatorMode, TooLong, vector_jacobian_product
from grader.worker.checks.flops import flop_formulas
from grader.worker.checks.zero_tiles import share_left
from grader.worker.conditions import seed_generators
from grader.worker.passes import call_forward, cotangent
from grader.worker.registry import handles
from grader.worker.session import Session

TAPE = "count"
"""Key of the tape that a count leaves behind."""
SECONDS = 1.0
"""Time limit for counting a backward."""
GATHERS = {"embedding", "embedding_bag", "gather", "index", "index_select", "take", "_embedding_bag"}
"""Operators that read no more of their first operand than they return."""
_SCANS = ("cumsum", "cumprod", "logcumsumexp", "_logcumsumexp")
ASSERTS = {"binary_cross_entropy", "bernoulli", "multinomial"}
"""Operators that refuse values out of a range: on a device by an assertion, which ends the process."""
APART = ("padding_idx", "ignore_index")
"""Arguments that name an integer to treat apart; negative if there is none."""
COMPARISONS = {"eq", "ne"}
BOUNDS = {
    "clamp": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "bucketize": ("boundaries",),
    "searchsorted": ("sorted_sequence",),
}
"""Arguments that are bounds or edges, by operator."""
PAIR = ("minimum", "maximum")
"""Operators that clamp together."""
READS_NOTHING = ("empty", "zeros", "ones", "full", "rand", "new_", "fill_", "zero_")


@handles(p.Count)
def count(session: Session, step: p.Count) -> p.Counted:
    """Count the work of one forward and, with cotangents, one backward if that takes at most SECONDS."""
    arguments = [value for value in session.inputs[step.inputs].arguments if isinstance(value, torch.Tensor)]
    run = p.Forward(
        model=step.model,
        inputs=step.inputs,
        tape=TAPE,
        training=step.training,
        grad=bool(step.cotangents),
        tf32=True,  # values do not matter here: a convolution's backward takes a sixth of the time
        clone_inputs=step.clone_inputs,
    )
    given = [*arguments, *session.models[step.model].parameters()]
    with Counter(given) as forward:
        outputs = call_forward(session, run)
    advanced = _generators(session.device)
    seed_generators(session.device, run.seed or 0)
    draws = not all(map(torch.equal, advanced, _generators(session.device)))
    model = session.models[step.model]
    counted = p.Counted(
        forward=forward.work(outputs.values()),
        draws=draws,
        asserts=forward.asserts,
        apart=tuple(forward.apart),
        bounds=forward.bounds([*model.named_parameters(), *model.named_buffers()]),
        written=tuple(name for name, value in model.named_parameters() if _storage(value) in forward.written),
    )
    if not step.cotangents:
        return counted
    tape = session.tapes[TAPE]
    pairs = [(tape.outputs[name], cotangent(session, value)) for name, value in step.cotangents.items()]
    try:
        with Counter([g for _, g in pairs], seconds=SECONDS) as backward:
            grads = vector_jacobian_product(pairs, tape.leaves, step.wrt)
    except TooLong:
        return counted
    return counted.model_copy(update={"backward": backward.work(grads.values())})


def _generators(device: torch.device) -> list[torch.Tensor]:
    """Return the states of the generators that a forward on the device may draw from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device.type == "cuda" else [])]


class Counter(OperatorMode):
    """Counts every operator below autograd while it is active."""

    def __init__(self, given: Iterable[torch.Tensor], *, seconds: float = math.inf) -> None:
        """`given` are the tensors that exist before the pass; only reads of them are counted."""
        super().__init__(seconds)
        self._given = {_storage(value): value.untyped_storage().nbytes() for value in given}
        self._read: dict[int, int] = {}
        self._operations = self._pointwise = self._scanned = 0
        self.asserts = False
        """Whether an operator asserts a range: one of ASSERTS, or an index that is made of floats."""
        self.apart: set[int] = set()
        """Integers that others are compared with, or that are treated apart."""
        self.written: set[int] = set()
        """The storages of given tensors that operators wrote to."""
        self._bounds: dict[str, set[int]] = {name: set() for name in (*BOUNDS, *PAIR)}
        self._formulas, self._matmul, self._convolution = flop_formulas(), 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.check_time()
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.asserts = self.asserts or name in ASSERTS or _makes_integers(func, args, result)
        self.apart |= _apart(func, args, kwargs or {})
        if func._schema.is_mutable:
            self.written |= self._given.keys() & set(map(_storage, _written(func, args, kwargs or {})))
        if (bounded := name.removesuffix("_")) in self._bounds:
            self._bounds[bounded].update(map(_storage, _bounds(func, args, kwargs or {})))
        formula = self._formulas.get(func.overloadpacket)
        flops = formula(*args, **(kwargs or {}), out_val=result) if formula is not None else 0
        flops = math.ceil(flops * share_left(func, args, kwargs or {})) if flops else 0
        if "conv" in name:
            self._convolution += flops
        else:
            self._matmul += flops
        if not func.is_view and not name.startswith(READS_NOTHING) and not name.endswith("_like"):
            self._operations += 1
            returned = sum(nbytes(value) for value in tree_leaves(result) if isinstance(value, torch.Tensor))
            self._note_reads(name, [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)], returned)
        if name.removesuffix("_") in _SCANS and result.is_floating_point() and result.dim():
            self._scanned = max(self._scanned, result.shape[args[1]])
        if torch.Tag.pointwise in func.tags and name != "clone":
            self._pointwise += sum(v.numel() for v in tree_leaves(result) if isinstance(v, torch.Tensor))
        return result

    def bounds(self, named: Iterable[tuple[str, torch.Tensor]]) -> tuple[str, ...]:
        """Names of those tensors that were bounds; of a minimum and a maximum only where there are both."""
        found = set().union(*(self._bounds[name] for name in BOUNDS))
        tensors = {name: _storage(value) for name, value in named}
        pair = [self._bounds[name] & set(tensors.values()) for name in PAIR]
        found |= pair[0] | pair[1] if all(pair) else set()
        return tuple(name for name, storage in tensors.items() if storage in found)

    def work(self, returned: Iterable[object]) -> p.Work:
        """Return the work so far, of a pass that returned these values."""
        written: dict[int, int] = {}
        for value in returned:
            if isinstance(value, torch.Tensor) and _storage(value) not in self._given:
                written[_storage(value)] = max(nbytes(value), written.get(_storage(value), 0))
        return p.Work(
            operations=self._operations,
            matmul=self._matmul,
            convolution=self._convolution,
            pointwise=self._pointwise,
            scanned=self._scanned,
            read_bytes=sum(self._read.values()),
            written_bytes=sum(written.values()),
        )

    def _note_reads(self, name: str, operands: list[torch.Tensor], returned: int) -> None:
        for index, value in enumerate(operands):
            key = _storage(value)
            if key in self._given:
                read = min(nbytes(value), returned) if name in GATHERS and index == 0 else nbytes(value)
                # The largest read, not the sum: two may read the same part.
                self._read[key] = min(self._given[key], max(read, self._read.get(key, 0)))


def _makes_integers(func: Any, args: Any, result: Any) -> bool:
    """Whether an operator converts floats to integers, which may be indices."""
    source = args[0] if func.overloadpacket is torch.ops.aten._to_copy else None
    return source is not None and source.is_floating_point() and result.dtype in (torch.int16, torch.int32, torch.int64)


def _apart(func: Any, args: Any, kwargs: Any) -> set[int]:
    """The integers that an operator compares others with, or treats apart."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    found = {given[name] for name in APART if given.get(name, -1) >= 0}
    if func.overloadpacket.__name__ in COMPARISONS and type(given["other"]) is int and not args[0].is_floating_point():
        found.add(given["other"])
    return found


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operator writes to."""
    arguments = func._schema.arguments
    given = dict(zip((argument.name for argument in arguments), args, strict=False)) | kwargs
    changed = [
        given.get(argument.name)
        for argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [value for value in tree_leaves(changed) if isinstance(value, torch.Tensor)]


def _bounds(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that are an operator's bounds or edges."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    names = BOUNDS.get(func.overloadpacket.__name__.removesuffix("_"), ("self", "other"))
    return [given[name] for name in names if isinstance(given.get(name), torch.Tensor)]


def nbytes(value: torch.Tensor) -> int:
    """Return the bytes of memory behind the elements; an expanded dimension counts once."""
    value, count = _held(value), 1
    for extent, stride in zip(value.shape, value.stride(), strict=True):
        count *= extent if stride or not extent else 1
    return count * value.element_size()


def _storage(value: torch.Tensor) -> int:
    return int(_held(value).untyped_storage()._cdata)


def _held(value: torch.Tensor) -> torch.Tensor:
    """The tensor, or of a sparse one, as the gradient of `nn.Embedding(sparse=True)`, its values."""
    return value._values() if value.layout is torch.sparse_coo else value
