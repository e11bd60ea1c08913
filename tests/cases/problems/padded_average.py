"""An average over windows, of which those at the first row and column have padding: it counts as zeros."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(nn.functional.avg_pool2d(nn.functional.leaky_relu(x, 0.2), 3, 2, 1))


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(4, 3, 12, 10)]
