"""Rounds to bfloat16 where the reference does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))

    def forward(self, x):
        return (x.bfloat16() @ self.weight.bfloat16().T).float()
