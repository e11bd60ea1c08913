"""A tensor with two plain numbers beside it: its mean as a float, and how many elements are positive."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) + 0.5
        return y, y.mean().item(), int((y > 0).sum())


def get_inputs():
    return [torch.randn(16, 24)]
