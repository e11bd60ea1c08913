"""A distance with an epsilon that only small inputs show, under a margin that hides it from the output."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(1 + ((x - y).square().sum(-1) + 1e-6).sqrt()).mean()


def get_inputs():
    return [torch.randn(16, 12), torch.randn(16, 12)]
