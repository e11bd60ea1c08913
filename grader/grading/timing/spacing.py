"""Where a call's tensors lie is worth some percent on a CPU, by how they share a cache, and half a percent of a GPU's
short calls, by their pages.

Drawn for each sample, that is noise. Left as it is, one of two processes would be the slower one throughout, and so
would all later candidates: each gets the pages that the last one gave back.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from grader.verdict.models import Device


class _Spacers(NamedTuple):
    """So many, of so many bytes at most, in steps of so many."""

    number: int
    most: int
    step: int


_SPACERS = {Device.CPU: _Spacers(1, 256 << 10, 64), Device.CUDA: _Spacers(2, 200 << 20, 1 << 20)}


def spacers(device: Device) -> tuple[int, ...]:
    """Bytes of what a sample's tensors come after, drawn here, where no submission seeds anything."""
    number, most, step = _SPACERS[device]
    return tuple(step * (1 + secrets.randbelow(most // step)) for _ in range(number))
