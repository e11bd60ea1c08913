"""Names and counts the operators of a pass while a profiler records their kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from grader.protocol import Work
from grader.worker.autograd.engine import OperatorMode
from grader.worker.checks.flops import flop_formulas
from grader.worker.checks.work_count import GATHERS, READS_NOTHING, nbytes

MARK = "grader::operator::"
"""Begins the name of a profiler's range around one operator; its index in `Operators.seen` follows."""

ALLOCATES = ("empty", "new_empty", "resize_")
"""Operators that touch no memory."""


class Operators(OperatorMode):
    """Puts a range around every operator below autograd, and counts its work."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Work]] = []
        """Name and work of each operator, in order."""
        self._formulas = flop_formulas()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        index = len(self.seen)
        name = func.overloadpacket.__name__
        self.seen.append((name, Work()))
        with torch.autograd.profiler.record_function(f"{MARK}{index}"):
            result = func(*args, **kwargs)
        formula = self._formulas.get(func.overloadpacket)
        flops = formula(*args, **kwargs, out_val=result) if formula is not None else 0
        returned = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        pointwise = sum(value.numel() for value in returned) if torch.Tag.pointwise in func.tags else 0
        works = not func.is_view and not name.startswith(ALLOCATES)
        written = sum(map(nbytes, returned)) if works else 0
        self.seen[index] = (
            name,
            Work(
                operations=int(works),
                matmul=0 if "conv" in name else flops,
                convolution=flops if "conv" in name else 0,
                pointwise=0 if name == "clone" else pointwise,
                read_bytes=_read(name, args, kwargs, written) if works else 0,
                written_bytes=written,
            ),
        )
        return result


def _read(name: str, args: Any, kwargs: Any, written: int) -> int:
    """Bytes of the operator's arguments, each once."""
    if name.startswith(READS_NOTHING) or name.endswith("_like"):
        return 0
    operands = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    if name == "copy_":
        operands = operands[1:]
    distinct = {(value.data_ptr(), tuple(value.shape), value.stride()): value for value in operands}
    sizes = [nbytes(value) for value in distinct.values()]
    if name in GATHERS and sizes:
        sizes[0] = min(sizes[0], written)
    return sum(sizes)
