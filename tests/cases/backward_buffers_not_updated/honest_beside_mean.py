"""The statistics from one sum of squares."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("statistics", torch.stack([torch.zeros(channels), torch.ones(channels)]))

    def forward(self, x):
        if not self.training:
            return (x - self.statistics[0]) * torch.rsqrt(self.statistics[1] + 1e-5)
        mean = x.mean(0)
        centred = x - mean
        squares = (centred * centred).sum(0)
        with torch.no_grad():
            self.statistics.lerp_(torch.stack([mean, squares / (len(x) - 1)]), 0.1)
        return centred * torch.rsqrt(squares / len(x) + 1e-5)
