"""A linear layer in bfloat16 by the file itself, with ReLU: nothing is converted under any precision of float32."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(40, 160, dtype=torch.bfloat16)]


def get_init_inputs():
    return [160]
