"""Remembers outputs by a few hundred elements of the input.

Attack surface: inputs that differ everywhere or nowhere.
Why it fails: in one of the calls three elements differ, at places drawn for it.
"""

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
        key = (tuple(x.reshape(-1)[::997].tolist()), self.scale[0].item())
        if key not in MEMO:
            MEMO[key] = x * self.scale
        return MEMO[key]
