"""Takes another path in eval(), with the same result."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        if self.training:
            return self.down(torch.tanh(self.up(x)))
        h = torch.addmm(self.up.bias, x, self.up.weight.t()).tanh()
        return torch.addmm(self.down.bias, h, self.down.weight.t())
