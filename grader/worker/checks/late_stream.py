"""A stream on which inputs arrive late: work that goes to any other stream shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

LATE_CYCLES = 20_000_000
"""How long the stream is busy before the inputs arrive: about 10 ms, far longer than a launch takes."""


@contextlib.contextmanager
def late_stream(device: torch.device, arguments: Iterable[torch.Tensor], *, there: bool) -> Iterator[None]:
    """With `there` on a GPU, run on a stream of our own on which the arguments' values arrive late; else as always.

    Work that goes to any other stream does not wait for them, and reads NaN.
    """
    if not there or device.type != "cuda":
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
