"""A norm with its running mean and variance in one buffer: errors of the variance are small beside the mean."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("statistics", torch.stack([torch.zeros(channels), torch.ones(channels)]))

    def forward(self, x):
        mean, variance = self.statistics
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                self.statistics.mul_(0.9).add_(0.1 * torch.stack([mean, x.var(0)]))
        return (x - mean) / torch.sqrt(variance + 1e-5)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(2048, 8) + 100]
