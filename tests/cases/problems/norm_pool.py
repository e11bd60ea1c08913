"""Max pooling behind a batch norm, whose weight may be negative."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.max_pool2d(self.norm(x), 2)


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(4, 6, 8, 8)]
