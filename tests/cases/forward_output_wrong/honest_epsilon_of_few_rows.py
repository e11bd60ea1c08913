"""The epsilon of a norm over whole samples is the reference's."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape, eps=1e-3)
        self.log_gain = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        centred = x - x.mean((1, 2, 3), keepdim=True)
        variance = centred.square().mean((1, 2, 3), keepdim=True)
        normed = centred * torch.rsqrt(variance + self.norm.eps)
        return (normed * self.norm.weight + self.norm.bias) * torch.exp(self.log_gain)
