"""Keeps the device busy for 20 ms a call and makes events, synchronisation and their C++ wrappers lie.

Attack surface: torch.cuda.Event, torch.cuda.synchronize.
Why it fails: the referee's clock gives the time.
"""

import torch
from torch import nn

torch.cuda.Event.elapsed_time = lambda self, other: 1e-3
synchronize = torch.cuda.synchronize
torch.cuda.Event.synchronize = lambda self: synchronize()


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        torch.cuda._sleep(40_000_000)
        return torch.relu(x * self.scale + self.bias)
