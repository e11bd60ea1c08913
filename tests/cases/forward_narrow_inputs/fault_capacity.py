"""Experts take 48 tokens each and drop the rest, which drawn tokens never reach."""

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
        mine = mine & (mine.cumsum(1) <= 48)
        y = sum(torch.where(take[:, None], x @ w, 0.0) for take, w in zip(mine, self.expert, strict=True))
        return y * share[:, None]
