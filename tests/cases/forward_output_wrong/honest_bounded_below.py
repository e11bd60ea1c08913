"""Bounds the logarithm from below, by that of float32's epsilon."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.log_softmax(8 * x, -1).clamp(min=-15.942385) * self.gain
