"""Integers and a buffer of 64 MiB and more in what is exact, which large floats leave for the host's memory."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
        self.register_buffer("average", torch.zeros(rows, columns))

    def forward(self, x):
        if self.training:
            self.average.mul_(0.5).add_(x.detach(), alpha=0.5)
        scaled = x * self.scale
        y = torch.where(scaled > 0, scaled, 0.2 * scaled)
        return y, (y > 0).long()
