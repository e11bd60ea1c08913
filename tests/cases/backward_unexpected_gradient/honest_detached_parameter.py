"""The honest twin: the forward detaches the scale, which then has no gradient."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.tanh(x * self.scale.detach() + self.bias)
