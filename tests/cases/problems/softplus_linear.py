"""A linear layer and softplus, which PyTorch differentiates without the output."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return F.softplus(self.linear(x))


def get_init_inputs():
    return [24, 40]


def get_inputs():
    return [torch.randn(16, 24)]
