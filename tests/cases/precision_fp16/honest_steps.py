"""Rounds after each step, as eager PyTorch does, and sums the product in two halves."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        half = x.shape[1] // 2
        weight = self.linear.weight.float()
        one, other = x[:, :half].float() @ weight[:, :half].t(), x[:, half:].float() @ weight[:, half:].t()
        z = (one + other).to(x.dtype) + self.linear.bias
        return torch.nn.functional.gelu(z) * self.scale
