"""Makes its parameters in another order, by another initialiser.

Wrongly rejected elsewhere: graders that seed both constructors alike and hope.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)
