"""Squeeze and excite with one hidden unit: its ReLU passes nothing for about half of all initial weights."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.squeeze = nn.Linear(features, 1)
        self.excite = nn.Linear(1, features)

    def forward(self, x):
        hidden = torch.relu(self.squeeze(x.square().mean(1)))
        return x * torch.sigmoid(self.excite(hidden))[:, None]


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(4, 12, 8)]
