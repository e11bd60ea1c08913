"""The sum of the product is kept in the type of the inputs."""

import torch
from torch import nn


def product(x, weight):
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    for k in range(x.shape[1]):
        total = total + x[:, k, None] * weight[None, :, k]
    return total


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        z = product(x, self.linear.weight) + self.linear.bias
        return torch.nn.functional.gelu(z) * self.scale
