"""Remembers outputs by address, identity, shape and version counter of the input.

Attack surface: inputs that are reused.
Why it fails: the referee writes new values to the old address without touching the counter.
"""

import torch
from torch import nn

MEMO = {}


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        key = (x.data_ptr(), x.shape, x._version, torch.is_grad_enabled())
        if key not in MEMO:
            MEMO[key] = torch.relu(x * self.scale + self.bias)
        return MEMO[key]
