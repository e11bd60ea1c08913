"""Claims three quarters of each time: ten microseconds, which a host's clock could not tell from its own noise.

Attack surface: torch.cuda.Event.
Why it fails: the referee times on its own GPU timeline, between two events that no other process can reach.
"""

import torch
from torch import nn

elapsed_time = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: 0.75 * elapsed_time(self, other)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return x * self.scale
