"""Tells the referee's stream that the call is done when it has not begun.

Attack surface: the flag in shared memory that ends a timed call on the GPU.
Why it fails: the referee copies the outputs when it sees the flag. As long as the device is busy with the call it does
not, and the time is the honest one; when it does, the outputs are not there yet.
"""

from dataclasses import replace

import torch
from torch import nn

from grader import protocol as p
from grader.worker.registry import HANDLERS

hold, signal = HANDLERS[p.Await], HANDLERS[p.Signal]


def hold_and_signal(session, step):
    done = hold(session, step)
    beside = replace(step.flag, offset=step.flag.offset + 512)
    signal(session, step.model_copy(update={"flag": beside}))
    return done


HANDLERS[p.Await] = hold_and_signal


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        torch.cuda._sleep(40_000_000)
        return x * self.scale
