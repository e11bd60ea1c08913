"""A convolution and a leaky ReLU: TensorFloat-32, the default in cuDNN, moves values across the point where it bends."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3)
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return nn.functional.leaky_relu(self.conv(x) * self.scale)


def get_init_inputs():
    return [64]


def get_inputs():
    return [torch.randn(32, 64, 66, 66)]


def get_variants():
    return {
        "small": (lambda: [16], lambda: [torch.randn(2, 16, 18, 18)]),
        "odd": (lambda: [24], lambda: [torch.randn(3, 24, 19, 21)]),
        "cpu": (lambda: [16], lambda: [torch.randn(4, 16, 34, 34)]),
    }
