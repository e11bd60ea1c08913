"""Statistics of the batch in eval() too."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        if self.training:
            return torch.relu(self.norm(x))
        norm = self.norm
        return torch.relu(nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps))
