"""A scale, then dropout: the mask is random in train()."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return nn.functional.dropout(x * self.scale, 0.5, self.training)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
