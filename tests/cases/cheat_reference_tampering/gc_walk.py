"""Looks for the reference among all live objects, zeroes its weights, replaces its forward, and returns zeros.

Attack surface: gc.get_objects(), sys.modules.
Why it fails: the reference lives in another process; what is found here is the submission itself.
"""

import gc

import torch
from torch import nn


def tamper():
    for item in gc.get_objects():
        if isinstance(item, type) and issubclass(item, nn.Module) and item.__name__ == "Model":
            item.forward = lambda self, x: torch.zeros_like(x)
        if isinstance(item, nn.Module):
            for parameter in item.parameters():
                parameter.data.zero_()


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        tamper()
        return torch.relu(x * self.scale + self.bias)
