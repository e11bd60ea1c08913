"""A sum over rows that lands in a buffer of the model's, which is what it returns."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("total", torch.zeros(channels))

    def forward(self, x):
        self.total.copy_(x.detach().sum(0))
        return self.total


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
