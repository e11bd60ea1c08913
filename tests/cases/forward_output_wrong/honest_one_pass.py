"""The variance as a mean of squares less the squared mean, which loses digits for shifted rows."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.norm.weight + self.norm.bias
