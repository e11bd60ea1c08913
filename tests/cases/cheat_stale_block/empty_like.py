"""Returns uninitialised memory, hoping for the block in which a reference output was freed.

Attack surface: the allocator's cache.
Why it fails: the reference's blocks are in another process.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.empty_like(x)
