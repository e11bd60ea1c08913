"""Dropout of attention's probabilities: the product with the values mixes the keys, so no output shows one number."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return self.dropout(torch.softmax(scores, -1)) @ v


def get_init_inputs():
    return [0.2]


def get_inputs():
    return [torch.randn(6, 16, 8) for _ in range(3)]
