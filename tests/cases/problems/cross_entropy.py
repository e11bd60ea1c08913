"""Cross entropy of a linear layer: the targets are int64."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.linear(x), target)


def get_init_inputs():
    return [12, 5]


def get_inputs():
    return [torch.randn(20, 12), torch.randint(5, (20,))]
