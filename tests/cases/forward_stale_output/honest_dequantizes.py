"""Unpacks and orders the quantized weights in every call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, (features, features), dtype=torch.int8))
        self.register_buffer("order", torch.randperm(features))
        self.scale = nn.Parameter(0.01 + 0.01 * torch.rand(features))

    def forward(self, x):
        return x @ self.codes[self.order].to(x.dtype).T * self.scale[self.order]
