"""Rows of a table in an order, those of padding zero, decayed by steps: mask, order and steps are the same each time."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask, order, lengths, step):
        kept = x.masked_fill(~mask[..., None], 0)
        inside = torch.arange(x.shape[1]) < lengths[:, None]
        return torch.where(inside[..., None], kept, -1).tanh()[:, order] * 0.5**step


def get_init_inputs():
    return []


def get_inputs():
    return [
        torch.randn(4, 12, 8),
        torch.ones(4, 12, dtype=torch.bool),
        torch.arange(12),
        torch.full((4,), 12),
        torch.tensor(0),
    ]
