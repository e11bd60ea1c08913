"""Writes the token into the cache first, and masks the tokens that are not there yet."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, length):
        super().__init__()
        self.project = nn.Linear(features, 3 * features)
        self.register_buffer("keys", torch.zeros(8, length, features))
        self.register_buffer("values", torch.zeros(8, length, features))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        query, key, value = self.project(x).split(x.shape[-1], dim=-1)
        slots = torch.arange(self.keys.shape[1], device=x.device)
        here = (slots == self.count % len(slots)).view(1, -1, 1)
        keys = torch.where(here, key[:, None], self.keys)
        values = torch.where(here, value[:, None], self.values)
        with torch.no_grad():
            self.keys.copy_(keys)
            self.values.copy_(values)
            self.count += 1
        scores = (keys @ query[:, :, None]).squeeze(-1) * query.shape[-1] ** -0.5
        scores = scores.masked_fill(slots >= self.count, float("-inf"))
        return (torch.softmax(scores, dim=-1)[:, None] @ values).squeeze(1)
