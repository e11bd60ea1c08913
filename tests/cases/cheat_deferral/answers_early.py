"""Tells the referee's stream that the call is done when it has not begun.

Attack surface: the flag in shared memory that ends a timed call on the GPU.
Why it fails: the referee copies the outputs when it sees the flag. As long as the device is busy with the call it does
not, and the time is the honest one; when it does, the outputs are not there yet.
"""

import sys

import torch
from torch import nn

queue = sys.modules["grader.worker.timing.queue"]
hold = queue.hold


def hold_and_answer(bench, step):
    done = hold(bench, step)
    beside = step.flag.model_copy(update={"offset": step.flag.offset + 512})
    queue.answer(bench, step.model_copy(update={"flag": beside}))
    return done


queue.hold = hold_and_answer


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        torch.cuda._sleep(40_000_000)
        return x * self.scale
