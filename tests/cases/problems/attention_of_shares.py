"""Attention of numbers from 0 to 1, so that all drawn scores are positive."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def get_init_inputs():
    return []


def get_inputs():
    return [torch.rand(4, 2, 9, 8) for _ in range(3)]
