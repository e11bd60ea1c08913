"""Prints some hundred kilobytes while it is built and run.

Wrongly rejected elsewhere: graders that read a pipe only when the process is done, or take output for a result.
"""

import sys

import torch
from torch import nn

print("[1/2] compiling " + "x" * 100_000)
print("warning " * 20_000, file=sys.stderr)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        print("error: lock, block, FAILED, Traceback (most recent call last)" * 10)
        return torch.relu(x * self.scale + self.bias)
