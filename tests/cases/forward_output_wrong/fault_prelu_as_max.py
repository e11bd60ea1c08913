"""PReLU as a maximum, which holds up to a slope of 1."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.PReLU()

    def forward(self, x):
        return torch.maximum(x, self.act.weight * x)
