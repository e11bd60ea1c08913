"""A variance that is the mean of squares less the squared mean."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        scaled = (x - mean) * torch.rsqrt(variance + self.norm.eps)
        return scaled * self.norm.weight + self.norm.bias
