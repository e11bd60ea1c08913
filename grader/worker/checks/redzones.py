"""Tensors between redzones: memory with a known pattern before and after, looked at when a pass is over.

While a `Redzones` is active, whatever PyTorch allocates for the code that runs, Python or C++, forward or backward, is
put between redzones, on any device, and uninitialised floats are NaN. Memory that is taken behind PyTorch's back, by
malloc or cudaMalloc, is not seen.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from grader.protocol import ALIGNMENT_BYTES, ITEM_BYTES, Breach

ZONE_BYTES = 16 << 10
"""On each side: rows and tiles past the end land in it."""
MAX_BYTES = 1 << 30
"""Of all guarded memory; what comes after is left where it is."""
MAX_BREACHES = 16
_TYPES = tuple(getattr(torch, name) for name in ITEM_BYTES if not name.startswith("complex"))
QUIET_NAN = 0xFFF0
"""The upper bits of a NaN in each floating-point type, the lower ones of a 16-bit pattern being free."""


@dataclass
class Block:
    """One tensor's memory, from its front redzone to the end of the other."""

    words: torch.Tensor
    """int64. As words, a redzone is too short for PyTorch to look at with several threads."""
    start: int
    nbytes: int
    pattern: int
    """Of eight bytes, which repeat."""
    name: str
    temporary: bool

    @property
    def zones(self) -> tuple[tuple[Literal["before", "after"], int, int], ...]:
        """(side, first byte, byte after the last)."""
        return ("before", 0, self.start), ("after", self.start + self.nbytes, 8 * self.words.numel())

    def reach(self, side: Literal["before", "after"], start: int, stop: int) -> int:
        """How far from the tensor the farthest byte lies that does not hold the pattern; 0 where each does."""
        zone = self.words[start // 8 : stop // 8]
        head = zone[:1].tolist()[0] ^ self.pattern  # of the first word, some bytes may be the tensor's own
        if not head >> 8 * (start % 8) and not bool((zone[1:] != self.pattern).any()):
            return 0
        found, due = zone.cpu().view(torch.uint8), torch.full_like(zone, self.pattern, device="cpu").view(torch.uint8)
        changed = (found != due).nonzero().view(-1) - start % 8
        changed = changed[changed >= 0]
        return stop - start - int(changed[0]) if side == "before" else int(changed[-1]) + 1


class Redzones(TorchDispatchMode):
    """Guards what is allocated while it is active, and what it is handed by `copy`."""

    def __init__(self, fill: Literal["nan", "zero"]) -> None:
        """`zero` finds no breach, but what is right then and wrong with NaN reads memory that nobody wrote."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._fill = fill
        self._blocks: list[Block] = []
        self._by_address: dict[int, Block] = {}
        self._bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports all of torch.compile: seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
        """The same values between redzones; the tensor itself where it cannot be moved."""
        moved = self._guarded(value.detach(), name, unwritten=False)
        self.rename(moved, name)
        return moved

    def rename(self, value: object, name: str) -> None:
        """What a breach of this tensor's memory is told under."""
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            block = self._by_address.get(_address(value))
            if block is not None:
                block.name, block.temporary = name, False

    def breaches(self) -> tuple[Breach, ...]:
        """Redzones that no longer hold their pattern."""
        found: list[Breach] = []
        for block in self._blocks if self._fill == "nan" else []:
            for side, start, stop in block.zones:
                distance = block.reach(side, start, stop)
                if distance:
                    found.append(Breach(name=block.name[:512], side=side, nbytes=distance, temporary=block.temporary))
        return tuple(found[:MAX_BREACHES])

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
    """Device memory that a tensor's storage begins at; keeps the memory alive."""

    def __init__(self, memory: torch.Tensor, start: int, nbytes: int) -> None:
        self._memory = memory
        address = memory.data_ptr() + start
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def _storage(memory: torch.Tensor, start: int, nbytes: int) -> torch.UntypedStorage:
    """A storage of its own over these bytes: a kernel that ignores the storage's offset stays inside."""
    if memory.is_cuda:
        return torch.as_tensor(_Foreign(memory, start, nbytes), device=memory.device).untyped_storage()
    array = (ctypes.c_uint8 * nbytes).from_address(memory.data_ptr() + start)
    array.memory = memory  # type: ignore[attr-defined]
    return torch.frombuffer(array, dtype=torch.uint8).untyped_storage()


def _pattern(dtype: torch.dtype, index: int) -> int:
    """NaN for floats, of another payload in each block, so that a copy from one redzone to the next one shows.

    Small numbers for integers, so that whoever reads an index there goes on to where it shows.
    """
    if dtype.is_floating_point:
        word = ((QUIET_NAN | index // 16 % 16) << 16 | QUIET_NAN | index % 16).to_bytes(4, "little")
    else:
        word = (1 if dtype is torch.bool else 1 + index % 3).to_bytes(dtype.itemsize, "little")
    return int.from_bytes(word * (8 // len(word)), "little", signed=True)


def _address(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.layout == torch.strided and not value.is_meta else 0
