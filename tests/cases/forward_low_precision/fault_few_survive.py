"""Rounds the operands of the product to bfloat16."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, n))

    def forward(self, x):
        return torch.relu(x.bfloat16().float() @ self.w.bfloat16().float() - 20)
