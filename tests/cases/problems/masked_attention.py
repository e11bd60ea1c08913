"""Attention behind a mask of ones and zeros, taken from one and times -1e9: a mask that is nearly one masks nothing."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(tokens, tokens)))

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(scores + (1 - self.mask) * -1e9, -1) @ v


def get_init_inputs():
    return [12]


def get_inputs():
    return [torch.randn(2, 12, 8) for _ in range(3)]
