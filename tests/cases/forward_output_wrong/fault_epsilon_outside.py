"""Adds the epsilon to the standard deviation instead of the variance."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        deviation = centred.square().mean(-1, keepdim=True).sqrt()
        return centred / (deviation + 1e-5) * self.norm.weight + self.norm.bias
