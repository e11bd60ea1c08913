"""Conditions that are the same in every call of a model, timed or not.

A submission that tells timed calls from others could be right in the others only.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Disable the garbage collector meanwhile, whose pauses would be timed."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def set_precision(device: torch.device, *, tf32: bool, always: bool = False) -> None:
    """Set the precision of float32 products on a GPU.

    Without `tf32` it is full precision; with it PyTorch's default, TensorFloat-32 in cuDNN and not in cuBLAS. `always`
    allows it in both. On a CPU, where it has no effect, it is always the default. Set before every call and never
    restored, because a submission may have changed it in between.
    """
    torch.backends.cuda.matmul.allow_tf32 = always
    torch.backends.cudnn.allow_tf32 = tf32 or always or device.type == "cpu"
