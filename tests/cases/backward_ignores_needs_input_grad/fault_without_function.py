"""Without an autograd Function: a scale that is read without its graph where the input requires no gradient."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        scale = self.scale if x.requires_grad else self.scale.data
        return torch.relu(x * scale + self.bias)
