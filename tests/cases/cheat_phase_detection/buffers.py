"""Leaves the running statistics alone while it is timed.

Attack surface: timed calls of which only the outputs are compared.
Why it fails: buffers are compared too.
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
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        if self.training and being_timed():
            y = nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)
        else:
            y = self.norm(x)
        return torch.relu(y)
