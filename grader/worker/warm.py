"""What a first job on a GPU would wait for, had before anybody's code is in the process."""

from __future__ import annotations

import torch

from grader.protocol import Warm, Warmed
from grader.worker.autograd import engine
from grader.worker.memory import give_back_memory
from grader.worker.timing import pace


def warm_up(step: Warm) -> Warmed:
    """Context, cuDNN, driver bindings and, for a reference, what operations are counted by."""
    engine.start("cuda")
    from cuda.bindings import driver  # noqa: F401

    if step.counts:
        from torch.utils import flop_counter  # noqa: F401
    found = pace.measure()
    give_back_memory(torch.device("cuda"), host=False)
    return found
