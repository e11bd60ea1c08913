"""Overwrites its input in timed calls, which it reads off the stack, and saves the memory of a result.

Attack surface: whether inputs stay as they were is asked in untimed calls.
Why it fails: it is asked in calls that look like timed ones.
"""

import sys

import torch
from torch import nn


def being_timed():
    frame = sys._getframe()
    while frame is not None:
        if type(frame.f_locals.get("step")).__name__ in ("Time", "Queue"):
            return True
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if being_timed() and not torch.is_grad_enabled():
            return x.mul_(self.scale).add_(self.bias).relu_()
        return torch.relu(x * self.scale + self.bias)
