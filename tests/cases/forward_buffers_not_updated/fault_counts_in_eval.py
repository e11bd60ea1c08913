"""Counts steps in eval() too."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels, momentum=None)

    def forward(self, x):
        norm = self.norm
        if self.training:
            variance, mean = torch.var_mean(x, 0, correction=0)
            with torch.no_grad():
                norm.num_batches_tracked += 1
                share = 1 / norm.num_batches_tracked
                norm.running_mean += share * (mean - norm.running_mean)
                norm.running_var += share * (variance * len(x) / (len(x) - 1) - norm.running_var)
        else:
            norm.num_batches_tracked += 1
            mean, variance = norm.running_mean, norm.running_var
        return torch.relu((x - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias)
