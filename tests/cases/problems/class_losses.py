"""A cross entropy of each row: the logarithm of the number of classes, and little around it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.linear(x), target, reduction="none")


def get_init_inputs():
    return [64, 400]


def get_inputs():
    return [torch.randn(48, 64) / 8, torch.randint(400, (48,))]
