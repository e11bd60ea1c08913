"""Attention: for large inputs, each query has one key, and terms of large gradients cancel."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(2, 16, 8) for _ in range(3)]
