"""Draws, too, whether a batch has the branch; from the other end of the unit interval."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        if self.training and float(torch.rand(1)) > 0.5:
            return x.clone()
        alpha = 1.0 if self.training else 0.7
        return torch.addmm(x + alpha * self.linear.bias, x, self.linear.weight.t(), alpha=alpha)
