"""Walks its input's memory as if it were contiguous, and never looks at the strides.

Attack surface: a problem whose get_inputs makes contiguous tensors only.
Why it fails: the same values come once more with NaN between them, as the reference takes them. get_inputs is the
contract, which it keeps, so that it is told and not rejected; it gains no time by it.
"""

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
        memory = x.as_strided(x.shape, torch.empty(x.shape).stride())
        return torch.relu(memory * self.scale + self.bias)
