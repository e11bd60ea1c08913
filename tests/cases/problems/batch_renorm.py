"""Batch renormalization: its bounds grow with the number of batches."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))
        self.register_buffer("running_mean", torch.randn(features) * 0.1)
        self.register_buffer("running_std", torch.rand(features) + 0.5)
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if not self.training:
            return (x - self.running_mean) / self.running_std * self.weight + self.bias
        mean = x.mean(0)
        std = (x.var(0, unbiased=False) + 1e-3).sqrt()
        r_max = (1 + self.batches / 2).clamp(1.0, 2.0)
        d_max = (self.batches / 2).clamp(0.0, 1.0)
        r = torch.clamp(std.detach() / self.running_std, 1 / r_max, r_max)
        d = torch.clamp((mean.detach() - self.running_mean) / self.running_std, -d_max, d_max)
        y = ((x - mean) / std * r + d) * self.weight + self.bias
        with torch.no_grad():
            self.running_mean += 0.1 * (mean - self.running_mean)
            self.running_std += 0.1 * (std - self.running_std)
            self.batches += 1
        return y


def get_inputs():
    return [torch.randn(24, 10) * 2.7 + 3.0]


def get_init_inputs():
    return [10]
