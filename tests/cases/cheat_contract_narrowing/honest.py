"""The same walk over the memory, of a copy that is contiguous."""

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
        memory = x.contiguous().as_strided(x.shape, torch.empty(x.shape).stride())
        return torch.relu(memory * self.scale + self.bias)
