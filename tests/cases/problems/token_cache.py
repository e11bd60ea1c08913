"""Decoding with a cache: each forward appends a token's keys and values, and attends to all tokens so far."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, length):
        super().__init__()
        self.project = nn.Linear(features, 3 * features)
        self.register_buffer("keys", torch.zeros(8, length, features))
        self.register_buffer("values", torch.zeros(8, length, features))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        query, key, value = self.project(x).chunk(3, dim=-1)
        length = self.keys.shape[1]
        at = int(self.count) % length
        keys, values = self.keys.clone(), self.values.clone()
        keys[:, at], values[:, at] = key, value
        self.keys.copy_(keys.detach())
        self.values.copy_(values.detach())
        self.count += 1
        seen = min(int(self.count), length)
        weights = torch.softmax(torch.einsum("bf,btf->bt", query, keys[:, :seen]) / query.shape[-1] ** 0.5, dim=-1)
        return torch.einsum("bt,btf->bf", weights, values[:, :seen])


def get_inputs():
    return [torch.randn(8, 20)]


def get_init_inputs():
    return [20, 4]
