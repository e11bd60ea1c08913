"""Claims all of a step's time for the forward, so that the backward seems to take none.

Attack surface: grader.worker.timing.clock._on_host.
Why it fails: forward and backward are two jobs, each between its own release and seal.
"""

import sys
import time

import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.02)
        return grad.clone()


clock = sys.modules["grader.worker.timing.clock"]
real = clock._on_host


def forged(action):
    spent = real(action)
    return spent + 20 if "_forward" in action.__qualname__ else 0.01


clock._on_host = forged


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return Scale.apply(torch.relu(x * self.scale + self.bias))
