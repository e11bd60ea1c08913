"""A blur whose weights are a buffer, and a scale that is one number: tables that nobody trains."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        weights = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("kernel", (weights[:, None] * weights / 16).repeat(channels, 1, 1, 1))
        self.register_buffer("scale", torch.tensor(0.25))

    def forward(self, x):
        return nn.functional.conv2d(x, self.kernel, padding=1, groups=x.shape[1]) * self.scale


def get_init_inputs():
    return [3]


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
