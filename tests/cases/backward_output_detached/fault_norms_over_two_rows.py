"""A forward without gradients, where rounding decides their values in both modes: they must exist all the same."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scales = nn.ParameterList(1 + 0.1 * torch.rand(features) for _ in range(3))

    @torch.no_grad()
    def forward(self, x):
        for scale in self.scales:
            x = x * scale
            x = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-7).sqrt()
        return x
