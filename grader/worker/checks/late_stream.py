"""A stream on which inputs arrive late, which exposes work on any other stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

LATE_CYCLES = 20_000_000
"""GPU clock cycles that pass before the inputs arrive: about 10 ms, far longer than a launch takes."""


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
