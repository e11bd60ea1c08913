"""1% too large, for a problem whose file makes bfloat16 tensors."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        weight, bias = self.linear.weight.float(), self.linear.bias.float()
        return (1.01 * torch.relu(x.float() @ weight.t() + bias)).to(x.dtype)
