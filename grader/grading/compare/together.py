"""Evaluates an elementwise function, and reductions of each tensor, over many tensors at once.

A deep network has hundreds of small parameters. Launching a comparison's kernels for each of them takes a hundred times
as long as the comparison. So tensors of one kind are laid end to end, in packs of at most `chunk` elements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import torch

_Result = TypeVar("_Result")
CHUNK_ELEMENTS = {True: 1 << 22, False: 1 << 24}
"""Elements that are compared at a time on the CPU and elsewhere. At 8 bytes each, the float64 temporaries of a
comparison need about 200 and 800 MB. With fewer, a GPU waits for its next kernels."""
SUMMED_ELEMENTS = {True: 1 << 17, False: 1 << 25}
"""Squares summed in float32 at a time on the CPU and elsewhere, for a result of five digits. A GPU sums in a tree, so
it may sum more."""
HOST_ELEMENTS = 1 << 14
"""Elements that a CPU compares before a GPU has launched the kernels."""


def chunk(device: torch.device) -> int:
    """Elements that are compared at a time on the device."""
    return CHUNK_ELEMENTS[device.type == "cpu"]


def packs(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """The positions of tensors that fit into one pack.

    They are of one dtype and device, and have a `chunk` of elements together at most. A tensor that is larger, empty or
    complex is alone.
    """
    kinds: defaultdict[object, list[int]] = defaultdict(list)
    for position, tensor in enumerate(tensors):
        alone = not tensor.numel() or tensor.is_complex()
        kinds[tensor.dtype, tensor.device, position if alone else None].append(position)
    for positions in kinds.values():
        pack, elements = list[int](), 0
        for position in positions:
            count = tensors[position].numel()
            if pack and elements + count > chunk(tensors[position].device):
                yield pack
                pack, elements = [], 0
            pack.append(position)
            elements += count
        yield pack


def by_pack(
    tensors: Sequence[torch.Tensor], alone: Callable[[int], _Result], packed: Callable[[list[int]], Iterable[_Result]]
) -> list[_Result]:
    """The result for each tensor.

    It is `alone` of its position, or one of `packed` of the positions in its pack.
    """
    found: dict[int, _Result] = {}
    for positions in packs(tensors):
        results = [alone(positions[0])] if len(positions) == 1 else packed(positions)
        found.update(zip(positions, results, strict=True))
    return [found[position] for position in range(len(tensors))]


class Pack:
    """Tensors end to end.

    A value of the pack has one element for each of theirs, a row one for each tensor.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], device: torch.device | None = None) -> None:
        """Pack tensors of at least one element each, on `device` or else on that of the first."""
        device = device or tensors[0].device
        self.shapes = [tensor.shape for tensor in tensors]
        self.counts = [tensor.numel() for tensor in tensors]
        self.device = device
        apart = len({tensor.device for tensor in tensors}) > 1
        parts = [(tensor.to(device) if apart else tensor).reshape(-1) for tensor in tensors]
        self.flat = (torch.cat(parts) if len(parts) > 1 else parts[0]).to(device)
        self._single = len(tensors) == 1
        """A block of a large tensor: there are hundreds, and none of them waits for the device."""

    @cached_property
    def _lengths(self) -> torch.Tensor:
        return torch.tensor(self.counts, device=self.device)

    def row(self, values: Sequence[float]) -> torch.Tensor:
        """A row of these float64 numbers."""
        if self._single:
            return torch.full((1,), values[0], dtype=torch.float64, device=self.device)
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def spread(self, row: torch.Tensor) -> torch.Tensor:
        """The value that has each tensor's number in all of its elements, or something that broadcasts to it."""
        return row if self._single else row.repeat_interleave(self._lengths, output_size=len(self.flat))

    def norms(self, value: torch.Tensor) -> torch.Tensor:
        """The row of Euclidean norms."""
        if not self._single:
            return torch.stack(torch._foreach_norm(torch.split(value.double(), self.counts)))
        parts = torch.split(value, SUMMED_ELEMENTS[value.device.type == "cpu"])
        lengths = [torch.linalg.vector_norm(part).double()[None] for part in parts]
        whole: torch.Tensor = torch.linalg.vector_norm(torch.cat(lengths))[None] if len(parts) > 1 else lengths[0]
        return whole

    def largest(self, value: torch.Tensor) -> torch.Tensor:
        """The row of largest magnitudes; NaN for a tensor with a NaN."""
        if self._single:
            whole: torch.Tensor = torch.linalg.vector_norm(value, math.inf)
            return whole[None]
        return torch.stack(torch._foreach_norm(torch.split(value, self.counts), math.inf))

    def peak(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of largest elements and of their positions in their tensors, of a nonnegative value."""
        if self._single:
            at = value.argmax()[None]
            return value[at], at
        largest, starts = self.largest(value), self._starts
        where = (value == self.spread(largest)).nonzero().view(-1)
        owners = torch.searchsorted(self._lengths.cumsum(0), where, right=True)
        first = torch.zeros_like(starts).scatter_reduce_(0, owners, where - starts[owners], "amin", include_self=False)
        return largest, first

    def at(self, value: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The row of each tensor's element at its position of these."""
        return value[positions if self._single else positions + self._starts]

    @property
    def _starts(self) -> torch.Tensor:
        return self._lengths.cumsum(0) - self._lengths

    def parts(self, value: torch.Tensor) -> list[torch.Tensor]:
        """The value of each tensor, in its shape: views."""
        return [part.view(shape) for part, shape in zip(torch.split(value, self.counts), self.shapes, strict=True)]


def each_on_host(
    function: Callable[[int, torch.Tensor], torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """A function of each position and tensor; few elements are copied to the host for it, together.

    There, many short operations on each tensor take a tenth of their launches on a GPU.
    """
    few = [
        at
        for at, tensor in enumerate(tensors)
        if tensor.device.type != "cpu" and tensor.numel() <= HOST_ELEMENTS and not tensor.is_complex()
    ]
    host = torch.device("cpu")
    copies = dict(zip(few, _copied([tensors[at] for at in few], host), strict=True))
    results = [function(at, copies.get(at, tensor)) for at, tensor in enumerate(tensors)]
    changed = [at for at in few if results[at] is not copies[at]]
    back = _copied([results[at] for at in changed], tensors[few[0]].device if few else host)
    # What the function left as it was is the tensor itself.
    kept = {at: tensors[at] for at in few} | dict(zip(changed, back, strict=True))
    return [kept.get(at, result) for at, result in enumerate(results)]


def _copied(tensors: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The tensors on another device, copied in packs."""

    def packed(positions: list[int]) -> list[torch.Tensor]:
        pack = Pack([tensors[position] for position in positions])
        return pack.parts(pack.flat.to(device))

    return by_pack(tensors, lambda position: tensors[position].to(device), packed)


def elementwise(
    function: Callable[[torch.Tensor], torch.Tensor], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """An elementwise function of each tensor.

    It must keep the dtype. It gets flat copies, and may change them.
    """

    def packed(positions: list[int]) -> list[torch.Tensor]:
        pack = Pack([tensors[position] for position in positions])
        return pack.parts(function(pack.flat))

    return by_pack(tensors, lambda position: _piece_by_piece(function, tensors[position]), packed)


def _piece_by_piece(function: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """A large tensor has one copy, and temporaries of a `chunk`."""
    result = tensor.clone(memory_format=torch.contiguous_format)
    for piece in torch.split(result.view(-1), chunk(result.device)):
        piece.copy_(function(piece))
    return result
