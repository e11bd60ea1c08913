"""Conditions of a call of a model.

Precision and garbage collection are the same in every call, timed or not: a submission that tells timed calls from
others could be right in the others only.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator

import torch

LATE_CYCLES = 8_000_000
"""GPU clock cycles that pass before the inputs arrive: about 4 ms, far longer than a launch takes."""


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


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed PyTorch's default generators of the CPU and of the device.

    `torch.manual_seed` seeds those of every kind of device, and formats a stack for each that is not in use: that takes
    a tenth of a millisecond, before every call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed_all(seed)


def set_precision(device: torch.device, *, tf32: bool, always: bool = False) -> None:
    """Set the precision of float32 products on a GPU.

    Without `tf32` it is full precision; with it PyTorch's default, TensorFloat-32 in cuDNN and not in cuBLAS. `always`
    allows it in both. On a CPU, where it has no effect, it is always the default. Set before every call and never
    restored, because a submission may have changed it in between.
    """
    torch.backends.cuda.matmul.allow_tf32 = always
    torch.backends.cudnn.allow_tf32 = tf32 or always or device.type == "cpu"


@contextlib.contextmanager
def late_stream(device: torch.device, arguments: Iterable[torch.Tensor], *, active: bool) -> Iterator[None]:
    """If active and on a GPU, run the block on a new stream on which the arguments' values arrive late.

    Work on any other stream does not wait for the values, and reads NaN.
    """
    if not active or device.type != "cuda":
        yield
        return
    late = [argument for argument in arguments if argument.is_floating_point()]
    values = [leaf.detach().clone() for leaf in late]
    for leaf in late:
        leaf.data.fill_(float("nan"))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LATE_CYCLES)  # type: ignore[no-untyped-call]
        for leaf, value in zip(late, values, strict=True):
            leaf.data.copy_(value)
        yield
    stream.synchronize()
