"""A batch norm of small values: beside a running variance of one, their variance is small, and its errors are smaller."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(2048, 6) * 0.03]
