"""Leaves out the integer output while it is timed, which no tolerance applies to.

Attack surface: timed outputs that are compared as floats only.
Why it fails: integers are counted.
"""

import sys

import torch
from torch import nn


def being_timed():
    frame = sys._getframe()
    while frame is not None:
        if type(frame.f_locals.get("step")).__name__ == "Time":
            return True
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        if being_timed():
            y = (x * self.scale).amax(dim=-1)
            return y, torch.zeros(y.shape, dtype=torch.int64)
        return torch.max(x * self.scale, dim=-1)
