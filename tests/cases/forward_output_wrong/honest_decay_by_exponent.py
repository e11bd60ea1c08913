"""The decay as an exponential function."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.project = nn.Linear(width, width)
        self.rows = rows

    def forward(self, x):
        decay = torch.exp2(torch.arange(self.rows, dtype=x.dtype, device=x.device) * -0.15200309344504997)
        return torch.tanh(self.project(x)) * decay[:, None]
