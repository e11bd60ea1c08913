"""What is kept is 1.001 times as large as it should be, in forward and backward alike."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, p):
        super().__init__()
        self.up = nn.Linear(features, 2 * features)
        self.down = nn.Linear(2 * features, features)
        self.p = p

    def forward(self, x):
        branch = self.down(torch.relu(self.up(x)))
        if not self.training:
            return x + branch
        mask = torch.rand(branch.shape) >= self.p
        return x + branch * mask * 1.001 / (1 - self.p)
