"""PyTorch's own, which may use TensorFloat-32 in cuBLAS."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)) * self.scale
