"""The clamp as comparisons, which differ from it where a lower bound is above an upper one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, c, bits):
        super().__init__()
        self.lo = nn.Parameter(-torch.rand(c) - 0.5)
        self.hi = nn.Parameter(torch.rand(c) + 0.5)
        self.levels = 2**bits - 1

    def forward(self, x):
        lo, hi = self.lo.view(1, -1, 1), self.hi.view(1, -1, 1)
        y = torch.where(x < lo, lo, torch.where(x > hi, hi, x))
        s = (hi - lo) / self.levels
        t = (y - lo) / s
        return (t + (torch.round(t) - t).detach()) * s + lo
