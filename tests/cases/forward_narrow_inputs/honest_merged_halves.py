"""Welford's rule for two halves of a row."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        halves = x.chunk(2, dim=-1)
        (one, other), count = (half.mean(-1, keepdim=True) for half in halves), halves[0].shape[-1]
        mean = one + (other - one) / 2
        squares = sum((half - half.mean(-1, keepdim=True)).square().sum(-1, keepdim=True) for half in halves)
        variance = (squares + (other - one).square() * count / 2) / (2 * count)
        scaled = (x - mean) * torch.rsqrt(variance + self.norm.eps)
        return scaled * self.norm.weight + self.norm.bias
