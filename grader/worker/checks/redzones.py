"""Finds writes outside of tensors: each tensor lies between redzones, memory with a known pattern.

While a `Redzones` is active, everything that PyTorch allocates is put between redzones, for Python and C++ code, in
forward and backward, on any device, and uninitialised floats are NaN. Memory from malloc or cudaMalloc is not covered.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree

from grader.protocol import ALIGNMENT_BYTES, ITEM_BYTES, Breach, Guard, Guarded
from grader.worker.autograd.engine import OperatorMode
from grader.worker.autograd.tensors import state_of
from grader.worker.passes import backward, call_forward
from grader.worker.registry import handles
from grader.worker.session import Session

ZONE_BYTES = 16 << 10
"""Size of the redzone on each side: rows and tiles past the end of a tensor land in it."""
MAX_BYTES = 1 << 30
"""Most guarded memory; tensors beyond it stay unguarded."""
MAX_BREACHES = 16
"""Most breaches that are reported."""
_TYPES = tuple(getattr(torch, name) for name in ITEM_BYTES if not name.startswith("complex"))
QUIET_NAN = 0xFFF0
"""The upper bits of a quiet NaN in each floating-point type; the lower bits of the 16-bit pattern are free."""


@handles(Guard)
def guard(session: Session, step: Guard) -> Guarded:
    """Run a pass with redzones around operands, outputs, gradients, grad_outputs and temporaries."""
    zones = Redzones(step.fill, step.seconds)
    tensors = {**state_of(session.models[step.forward.model]), **session.inputs[step.forward.inputs].leaves}
    unguarded = {name: value.data for name, value in tensors.items()}
    try:
        for name, value in tensors.items():
            value.data = zones.copy(value, name)
        with _uncompiled(), zones:
            outputs = call_forward(session, step.forward)
            if step.backward is not None:
                backward(session, step.backward)
        session.synchronize()
    finally:
        for name, value in unguarded.items():
            tensors[name].data = value
    for name, output in outputs.items():
        zones.rename(output, name)
    if step.backward is not None:
        for name, gradient in session.grads[step.backward.grads].items():
            zones.rename(gradient, f"grad:{name}")
        for name, grad_output in session.grad_outputs[step.backward.grads].items():
            zones.rename(grad_output, f"cotangent:{name}")
    return Guarded(breaches=zones.breaches())


def _uncompiled() -> Any:
    """A context in which torch.compile, if it is in use, runs the functions themselves.

    Its own code allocates behind the redzones, and compiling it for them takes tens of seconds.
    """
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


@dataclass
class Block:
    """One tensor's memory with the redzones before and after it."""

    words: torch.Tensor
    """int64: in words, a redzone is short enough for PyTorch to compare in one thread."""
    start: int
    nbytes: int
    pattern: int
    """Eight bytes, which repeat."""
    name: str
    temporary: bool

    @property
    def zones(self) -> tuple[tuple[Literal["before", "after"], int, int], ...]:
        """The two redzones as (side, first byte, byte after the last)."""
        return ("before", 0, self.start), ("after", self.start + self.nbytes, 8 * self.words.numel())

    def reach(self, side: Literal["before", "after"], start: int, stop: int) -> int:
        """Return the distance in bytes to the farthest changed byte; 0 if the redzone is intact."""
        zone = self.words[start // 8 : stop // 8]
        head = zone[:1].tolist()[0] ^ self.pattern  # the first word may begin with bytes of the tensor
        if not head >> 8 * (start % 8) and not bool((zone[1:] != self.pattern).any()):
            return 0
        actual = zone.cpu().view(torch.uint8)
        expected = torch.full_like(zone, self.pattern, device="cpu").view(torch.uint8)
        changed = (actual != expected).nonzero().view(-1) - start % 8
        changed = changed[changed >= 0]
        return stop - start - int(changed[0]) if side == "before" else int(changed[-1]) + 1


class Redzones(OperatorMode):
    """Guards every tensor that is allocated while it is active, and every one passed to `copy`."""

    def __init__(self, fill: Literal["nan", "zero"], seconds: float = math.inf) -> None:
        """Fill redzones and uninitialised memory with NaN or zeros; an operator raises TooLong after `seconds`.

        `zero` finds no breach. A result that is right with it and wrong with `nan` depends on uninitialised memory.
        """
        super().__init__(seconds)
        self._fill = fill
        self._blocks: list[Block] = []
        self._by_address: dict[int, Block] = {}
        self._bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.check_time()
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        given = {_address(value) for value in _pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)}
        unwritten = func.overloadpacket.__name__ in ("empty", "empty_like", "empty_strided", "new_empty")

        def guard(value: Any) -> Any:
            if type(value) is not torch.Tensor or _address(value) in given:
                return value
            return self._guarded(value, str(func.overloadpacket), unwritten=unwritten)

        return _pytree.tree_map(guard, results)

    def copy(self, value: torch.Tensor, name: str) -> torch.Tensor:
        """Return the same values between redzones; the tensor itself if it cannot be moved."""
        moved = self._guarded(value.detach(), name, unwritten=False)
        self.rename(moved, name)
        return moved

    def rename(self, value: object, name: str) -> None:
        """Report breaches around this tensor under another name, and no longer as those of a temporary."""
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            block = self._by_address.get(_address(value))
            if block is not None:
                block.name, block.temporary = name, False

    def breaches(self) -> tuple[Breach, ...]:
        """Return the redzones that were written to."""
        breaches: list[Breach] = []
        for block in self._blocks if self._fill == "nan" else []:
            for side, start, stop in block.zones:
                distance = block.reach(side, start, stop)
                if distance:
                    breaches.append(
                        Breach(name=block.name[:512], side=side, nbytes=distance, temporary=block.temporary)
                    )
        return tuple(breaches[:MAX_BREACHES])

    def _guarded(self, value: torch.Tensor, name: str, *, unwritten: bool) -> torch.Tensor:
        if value.layout != torch.strided or value.is_meta or not value.numel():
            return value
        if torch._debug_has_internal_overlap(value) or value.dtype not in _TYPES:
            return value
        extent = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True)) + 1
        nbytes = extent * value.element_size()
        if self._bytes + nbytes > MAX_BYTES:
            return value
        words = torch.empty(
            (2 * ZONE_BYTES + nbytes + 7) // 8 + ALIGNMENT_BYTES // 8, dtype=torch.int64, device=value.device
        )
        start = ZONE_BYTES + -(words.data_ptr() + ZONE_BYTES) % ALIGNMENT_BYTES
        pattern = _pattern(value.dtype, len(self._blocks)) if self._fill == "nan" else 0
        words.fill_(pattern)
        moved = torch.empty(0, dtype=value.dtype, device=value.device)
        moved.set_(_storage(words, start, nbytes), 0, value.shape, value.stride())
        if not unwritten:
            moved.copy_(value)
        block = Block(words, start, nbytes, pattern, name, temporary=True)
        self._blocks.append(block)
        self._by_address[moved.data_ptr()] = block
        self._bytes += 8 * words.numel()
        return moved


class _Foreign:
    """Device memory from `start` on, as the array interface describes it; keeps the memory alive."""

    def __init__(self, memory: torch.Tensor, start: int, nbytes: int) -> None:
        self._memory = memory
        address = memory.data_ptr() + start
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def _storage(memory: torch.Tensor, start: int, nbytes: int) -> torch.UntypedStorage:
    """Return a storage over these bytes alone: a kernel that ignores storage offsets stays inside."""
    if memory.is_cuda:
        return torch.as_tensor(_Foreign(memory, start, nbytes), device=memory.device).untyped_storage()
    array = (ctypes.c_uint8 * nbytes).from_address(memory.data_ptr() + start)
    array.memory = memory  # type: ignore[attr-defined]
    return torch.frombuffer(array, dtype=torch.uint8).untyped_storage()


def _pattern(dtype: torch.dtype, index: int) -> int:
    """Return the pattern of a redzone: NaN for floats, small numbers for integers.

    NaNs have another payload in each block, to detect a copy from one redzone to the next. With small integers a kernel
    that reads an index there goes on to write where it is detected.
    """
    if dtype.is_floating_point:
        word = ((QUIET_NAN | index // 16 % 16) << 16 | QUIET_NAN | index % 16).to_bytes(4, "little")
    else:
        word = (1 if dtype is torch.bool else 1 + index % 3).to_bytes(dtype.itemsize, "little")
    return int.from_bytes(word * (8 // len(word)), "little", signed=True)


def _address(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.layout == torch.strided and not value.is_meta else 0
