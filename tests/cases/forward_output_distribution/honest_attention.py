"""One draw for all heads, keys before queries: another order of the same numbers."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, q, k, v):
        a = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        if self.training:
            numbers = torch.rand(a.shape[2], a.shape[1], a.shape[0]).permute(2, 1, 0)
            a = a * (numbers >= self.p) / (1 - self.p)
        return a @ v
