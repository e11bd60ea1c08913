"""Remembers outputs by every element of input and scale, which is pointless and right."""

import torch
from torch import nn

MEMO = {}


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        if torch.is_grad_enabled():
            return x * self.scale
        MEMO.clear()
        key = (x.contiguous().numpy().tobytes(), self.scale.numpy().tobytes())
        if key not in MEMO:
            MEMO[key] = x * self.scale
        return MEMO[key]
