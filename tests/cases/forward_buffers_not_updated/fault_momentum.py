"""The momentum is that of another library."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                unbiased = variance * (x.shape[0] / (x.shape[0] - 1))
                norm.running_mean.lerp_(mean, 0.01)
                norm.running_var.lerp_(unbiased, 0.01)
                norm.num_batches_tracked += 1
        else:
            mean, variance = norm.running_mean, norm.running_var
        return torch.relu((x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias)
