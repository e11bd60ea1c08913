"""Keeps a tensor to work in from call to call, and returns a fresh one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self._workspace = {}

    def forward(self, x):
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        if x.shape not in self._workspace:
            self._workspace[x.shape] = torch.empty_like(x)
        work = torch.mul(x, self.scale, out=self._workspace[x.shape])
        return torch.relu(work.add_(self.bias))
