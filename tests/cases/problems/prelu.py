"""A PReLU with one parameter, which training may move above 1."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.PReLU()

    def forward(self, x):
        return self.act(x)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(12, 8)]
