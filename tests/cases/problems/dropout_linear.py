"""Dropout in front of a linear layer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(torch.dropout(x, 0.2, self.training))


def get_init_inputs():
    return [32]


def get_inputs():
    return [torch.randn(8, 32)]
