"""A grouped transposed convolution, which cuDNN may compute in float32 where it takes TensorFloat-32 group by group."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, channels, 3, groups=groups)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [64, 4]


def get_inputs():
    return [torch.randn(8, 64, 24, 24)]
