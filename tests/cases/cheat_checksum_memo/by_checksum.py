"""Remembers outputs by a checksum of all elements, in whatever order they stand.

Attack surface: edits that add or change values, and never move them.
Why it fails: in one of the calls two elements are swapped.
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
        bits = x.view(torch.int32).long()  # in integers, so that no rounding depends on the order
        key = (bits.sum().item(), bits.square().sum().item(), self.scale.sum().item())
        if key not in MEMO:
            MEMO[key] = x * self.scale
        return MEMO[key]
