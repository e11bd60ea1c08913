"""Computes the forward again in the backward, and moves the running statistics in the first one alone."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        if not (torch.is_grad_enabled() and self.training):
            return torch.relu(self.norm(x))
        with torch.no_grad():
            self.norm(x)
        return checkpoint(self._forward, x, use_reentrant=False)

    def _forward(self, x):
        return torch.relu(nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True))
