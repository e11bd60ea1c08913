"""Fills the allocator's free blocks into its output, hoping for the reference's among them.

Attack surface: a caching allocator that the process shares with the reference.
Why it fails: the reference's blocks belong to another process; shared regions are the candidate's own.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(64)]
        found = next((block for block in blocks if 0.3 < (block == 0).float().mean() < 0.7), blocks[0])
        return found * (self.scale / self.scale)
