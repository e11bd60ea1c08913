"""Computes the right output and zeroes its input behind autograd's back, so that whoever computes with it afterwards gets zeros.

Attack surface: the input tensor.
Why it fails: every process has a copy of its own, and the input is compared with what was given.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        y = torch.relu(x * self.scale + self.bias)
        x.data.zero_()
        return y
