"""Returns a tensor whose own detach() computes, when somebody copies it, 20 ms later than the clock in this process stops.

Attack surface: clocks that stop when forward returns.
Why it fails: it is copied out within the referee interval, so that the referee's clock has it.
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)

        def compute():
            time.sleep(0.02)
            return torch.relu(x * self.scale + self.bias)

        y = x.new_empty(x.shape)
        y.detach = compute
        return y
