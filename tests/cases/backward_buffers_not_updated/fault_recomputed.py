"""Computes the forward again in the backward, which moves the running statistics twice."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        if torch.is_grad_enabled():
            return checkpoint(self._forward, x, use_reentrant=False)
        return self._forward(x)

    def _forward(self, x):
        return torch.relu(self.norm(x))
