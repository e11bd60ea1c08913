"""A problem whose file makes bfloat16 tensors, graded as it is."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, dtype=torch.bfloat16)

    def forward(self, x):
        weight, bias = self.linear.weight.float(), self.linear.bias.float()
        return torch.relu(x.float() @ weight.t() + bias).to(x.dtype)
