"""Both biases, with the one branch that an element takes of each."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.above = nn.Parameter(torch.zeros(channels))
        self.below = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        above, below = x + self.above, self.below - x
        zero = torch.zeros_like(x)
        return torch.where(above > 0, above, zero) + torch.where(below > 0, below, zero)
