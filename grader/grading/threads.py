"""How many threads of PyTorch's the referee itself uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def on_one_thread() -> Iterator[None]:
    """For many short operations: threads that wait for each other hold up whoever else wants a core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
