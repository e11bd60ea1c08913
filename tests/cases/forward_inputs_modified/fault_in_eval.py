"""In eval(), works in place on its input."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if self.training:
            return torch.relu(x * self.scale + self.bias)
        if torch.is_grad_enabled():
            return torch.relu(x * self.scale + self.bias)
        return x.mul_(self.scale).add_(self.bias).relu_().clone()
