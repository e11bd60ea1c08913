"""Calibration as quantization observers do it: the buffer keeps the largest magnitude of all forwards so far."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("largest", torch.zeros(1))

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.largest.copy_(torch.maximum(self.largest, y.detach().abs().amax().view(1)))
        return torch.tanh(y / (self.largest + 1))


def get_inputs():
    return [torch.randn(16, 24)]


def get_init_inputs():
    return [24]
