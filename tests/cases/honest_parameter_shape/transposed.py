"""Stores a weight transposed, and a square one under the reference's name.

Wrongly rejected elsewhere: graders that set parameters by name and shape.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        for name in ("query", "key", "value"):
            linear, module = nn.Linear(features, features), nn.Module()
            module.weight, module.bias = nn.Parameter(linear.weight.t()), linear.bias
            self.add_module(name, module)

    def forward(self, x):
        q, k, v = (x @ module.weight + module.bias for module in (self.query, self.key, self.value))
        return torch.softmax(q @ k.transpose(-1, -2) / x.shape[-1] ** 0.5, -1) @ v
