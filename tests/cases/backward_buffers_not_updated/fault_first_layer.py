"""Moves the statistics only where the input needs a gradient, or nobody does: never as a first layer in training."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        if self.training and torch.is_grad_enabled() and not x.requires_grad:
            return torch.relu(nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True))
        return torch.relu(self.norm(x))
