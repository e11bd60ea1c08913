"""An activation of each element."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(64, 48)]
