"""Sums the mean in another order."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) + 0.5
        return y, float(y.double().sum() / y.numel()), sum((row > 0).sum().item() for row in y)
