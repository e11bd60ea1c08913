"""Scaled by the share that is kept in each row, in place of 1 - p."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, q, k, v):
        a = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1)
        if self.training:
            mask = (torch.rand_like(a) >= self.p).float()
            a = a * mask / mask.mean(-1, keepdim=True).clamp(min=0.05)
        return a @ v
