"""The largest magnitude of the last forward, without those of the forwards before."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("largest", torch.zeros(1))

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        if self.training:
            with torch.no_grad():
                self.largest.fill_(y.abs().max())
        return torch.tanh(y * (1 / (self.largest + 1)))
