"""Experts take 48 tokens each at a time, and the rest in another turn."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts, bias=False)
        self.expert = nn.Parameter(torch.randn(experts, features, features) / 4)

    def forward(self, x):
        share, chosen = torch.softmax(self.gate(x), -1).max(-1)
        mine = chosen == torch.arange(len(self.expert))[:, None]
        first = mine & (mine.cumsum(1) <= 48)
        y = torch.zeros_like(x)
        for turn in (first, mine & ~first):
            for take, w in zip(turn, self.expert, strict=True):
                y = y + torch.where(take[:, None], x @ w, 0.0)
        return y * share[:, None]
