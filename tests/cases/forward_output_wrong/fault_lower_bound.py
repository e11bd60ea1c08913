"""Raises the smallest shares to 1e-12, and not to float32's epsilon."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.log_softmax(8 * x, -1).clamp(min=-27.63) * self.gain
