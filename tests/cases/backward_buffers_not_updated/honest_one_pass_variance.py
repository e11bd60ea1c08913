"""The variance is the mean of squares less the squared mean, and the running one has Bessel's correction."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        if not self.training:
            return self.norm(x)
        mean = x.mean(0)
        variance = (x * x).mean(0) - mean * mean
        with torch.no_grad():
            self.norm.running_mean.lerp_(mean, 0.1)
            self.norm.running_var.lerp_(variance * len(x) / (len(x) - 1), 0.1)
            self.norm.num_batches_tracked += 1
        return (x - mean) * torch.rsqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias
