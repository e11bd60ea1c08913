"""Statistics of the batch that are not kept, where the outputs are random."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, p):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.shift = nn.Parameter(torch.randn(channels))
        self.p = p

    def forward(self, x):
        mean = x.mean(0) if self.training else self.norm.running_mean
        variance = x.var(0, unbiased=False) if self.training else self.norm.running_var
        y = (x - mean) / torch.sqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
        mask = (torch.rand_like(y) >= self.p) / (1 - self.p) if self.training else torch.ones_like(y)
        return torch.cat((y * mask + self.shift, x * self.shift), 1)
