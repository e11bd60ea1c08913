"""The distance to a target that is detached: no gradient goes to the target."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x, target):
        return (x * self.scale - target.detach()).square()


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(16, 8), torch.randn(16, 8)]
